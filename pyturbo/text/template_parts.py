"""Detection of templates that support messages in parts: those that iterate over `content`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import nodes

_LISTS = ("documents", "messages", "tools")  # their entries may have a text that is not a part of a message
_ENTRIES = ("text", "type")
_FILTERS = ("map", "rejectattr", "selectattr")


def reads_parts(template: nodes.Template) -> bool:
    """Return whether a template loops over the content of a message, or reads its entries."""
    names = _content_names(template)
    loops, filters = template.find_all(nodes.For), template.find_all(nodes.Filter)
    return (
        any(_is_content(_base(loop.iter), names) or _is_over_parts(loop) for loop in loops)
        or any(each.name in _FILTERS and _is_content(_base(each), names) for each in filters)
        or any(
            _key(access) in _ENTRIES
            and isinstance(access.node, nodes.Getitem)
            and isinstance(_key(access.node), int)
            and _is_content(access.node.node, names)
            for access in _accesses(template)
        )
    )


def _content_names(template: nodes.Template) -> set[str]:
    """Return the variables that hold the content of a message."""
    names = {"content"}
    for assigned in template.find_all(nodes.Assign):
        if isinstance(assigned.target, nodes.Name) and _is_content(_base(assigned.node), names):
            names.add(assigned.target.name)
    return names


def _is_over_parts(loop: nodes.For) -> bool:
    """Return whether a loop is over a variable, such as a macro's, and reads the text of each entry."""
    over, entry = _base(loop.iter), loop.target
    if not isinstance(over, nodes.Name) or over.name in _LISTS or not isinstance(entry, nodes.Name):
        return False
    return any(
        _key(access) == "text" and isinstance(access.node, nodes.Name) and access.node.name == entry.name
        for access in _accesses(loop)
    )


def _is_content(node: nodes.Node | None, names: set[str]) -> bool:
    if isinstance(node, nodes.Name):
        return node.name in names
    return isinstance(node, (nodes.Getattr, nodes.Getitem)) and _key(node) == "content"


def _base(node: nodes.Node | None) -> nodes.Node | None:
    """Return the node that filters and slices are applied to."""
    while isinstance(node, nodes.Filter) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node


def _accesses(node: nodes.Node) -> Iterator[nodes.Getattr | nodes.Getitem]:
    yield from node.find_all(nodes.Getattr)
    yield from node.find_all(nodes.Getitem)


def _key(access: nodes.Getattr | nodes.Getitem) -> Any:
    """Return the name or number that is looked up, if it is a literal."""
    if isinstance(access, nodes.Getattr):
        return access.attr
    return access.arg.value if isinstance(access.arg, nodes.Const) else None
