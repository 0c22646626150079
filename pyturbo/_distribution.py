"""The name that pip knows this package by, and the other project that also installs a folder `pyturbo`."""

from __future__ import annotations

from pathlib import Path

#: The name of the distribution that pip installs; its import name is `pyturbo`.
NAME = "pyturbo-llm"

#: Another project's distribution, which has the same import name.
OTHER = "pyturbo"


def advice() -> str:
    """Return what to do when parts of the package are missing, or are another project's."""
    from importlib.metadata import PackageNotFoundError, version

    if (Path(__file__).parent / "_device.pyx").exists():
        return (
            "In a checkout, run `make build` and use .venv/bin/python from another folder, "
            "or `pip install .` first"
        )
    again = f"pip install --force-reinstall --no-deps {NAME}"
    try:
        found = version(OTHER)
    except PackageNotFoundError:
        return f"To install it again: {again}"
    return (
        f"The distribution {OTHER!r} {found} is installed too: another project that has the same import name "
        f"and replaces files of {NAME}. Remove it, then install this one again: "
        f"pip uninstall {OTHER} && {again}"
    )
