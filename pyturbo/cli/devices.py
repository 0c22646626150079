"""``pyturbo devices``: the devices of this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pyturbo
from pyturbo._device import missing_device_list
from pyturbo.cli import _output
from pyturbo.errors import TurboError

if TYPE_CHECKING:
    from rich.table import Table

HELP = "list the devices of this machine, best first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(arguments: argparse.Namespace) -> None:
    devices = {name: _properties(name) for name in pyturbo.devices()}

    def table() -> Table:
        out = _output.table("device", "properties")
        for name, properties in devices.items():
            out.add_row(name, ", ".join(f"{key}: {value}" for key, value in properties.items()))
        return out

    _output.show(arguments, devices, table)
    for name, reason in missing_device_list().items():
        _output.note(f"{name} is not available: {reason}")


def _properties(name: str) -> dict[str, str]:
    try:
        with pyturbo.Device(name) as device:
            return device.properties
    except TurboError as error:
        return {"cannot be opened": str(error)}
