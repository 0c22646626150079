"""Types of the shading language as host code spells them."""

from __future__ import annotations

import re

from .program import Program
from .tokens import words

HOST_TYPES = {
    "bool": "bool",
    "float": "float",
    "half": "Half",
    "bfloat": "BFloat",
    **dict.fromkeys(words("char int8_t"), "int8_t"),
    **dict.fromkeys(words("uchar uint8_t"), "uint8_t"),
    **dict.fromkeys(words("short int16_t"), "int16_t"),
    **dict.fromkeys(words("ushort uint16_t"), "uint16_t"),
    **dict.fromkeys(words("int int32_t"), "int32_t"),
    **dict.fromkeys([*words("uint unsigned uint32_t"), "unsigned int"], "uint32_t"),
    **dict.fromkeys(words("long int64_t ptrdiff_t"), "int64_t"),
    **dict.fromkeys(words("ulong uint64_t size_t"), "uint64_t"),
}
_FLOATS = ("float", "Half", "BFloat")


def host_type(program: Program, type_: str) -> str:
    """Return the host's type with the same bytes; "" for vectors, structs and others it has no name for."""
    seen: set[str] = set()
    name = type_.replace("metal::", "").strip()
    while name in program.aliases and name not in seen:
        seen.add(name)
        name = program.aliases[name].replace("metal::", "").strip()
    name = re.sub(r"^atomic\s*<\s*(\w+)\s*>$|^atomic_(\w+)$", r"\1\2", name)
    return HOST_TYPES.get(name, "")


def is_integer(program: Program, type_: str) -> bool:
    return host_type(program, type_) not in ("", *_FLOATS)
