"""Writes what soft Metal takes for a metallib: the names of the kernels in the manifests, one a line."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(out: str, *manifests: str) -> None:
    contents = [json.loads(Path(manifest).read_text()) for manifest in manifests]
    lines = ["soft metallib 1", *(kernel["name"] for content in contents for kernel in content["kernels"])]
    Path(out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
