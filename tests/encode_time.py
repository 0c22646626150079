"""Prints the time of encoding a decode step for a Metal whose calls do nothing: python tests/encode_time.py.

Not part of the tests. It is `pyturbo bench encode` on soft Metal, with command buffers that are done at once.
"""

from __future__ import annotations

from pyturbo import _soft_metal_tests as soft_metal
from pyturbo.cli import main

if __name__ == "__main__":
    soft_metal.set_options(does_nothing=True)
    main(["bench", "encode"])
