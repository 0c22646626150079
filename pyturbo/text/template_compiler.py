"""Compilation of templates to Python that counts steps and computes nothing before rendering."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from pyturbo.errors import FormatError

LONGEST = 250_000  # characters
MOST_NODES = 10_000
DEEPEST = 100

#: Filters that only `prepare` inserts: no template can name them.
LOOP, STEPS = "(loop)", "(steps)"

_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
    "notin": "not in",
}


def prepare(template: nodes.Template) -> int:
    """Make loops, macros and blocks count their steps, and return the number of nodes."""
    return _prepared(template, 0)


def _prepared(node: nodes.Node, depth: int) -> int:
    if depth > DEEPEST:
        raise FormatError(f"chat_template: expected at most {DEEPEST} levels of nesting, got more")
    count = 1 + sum(_prepared(child, depth + 1) for child in node.iter_child_nodes())
    if count > MOST_NODES:
        raise FormatError(f"chat_template: expected at most {MOST_NODES} parts, got more")
    if isinstance(node, nodes.For):
        node.iter = _filter(node.iter, LOOP, count)
    elif isinstance(node, (nodes.Macro, nodes.CallBlock, nodes.Block)):
        node.body.insert(0, nodes.ExprStmt(_filter(nodes.Const(None), STEPS, count), lineno=node.lineno))
    elif isinstance(node, nodes.Const) and isinstance(node.value, int) and node.value.bit_length() > 64:
        raise FormatError(
            f"chat_template: expected numbers of at most 64 bits, got {node.value.bit_length()}"
        )
    return count


def _filter(node: Any, name: str, steps: int) -> nodes.Filter:
    return nodes.Filter(node, name, [nodes.Const(steps)], [], None, None, lineno=node.lineno or 1)


class Compiler(CodeGenerator):
    """A code generator that has the environment perform operations that may be expensive."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx == "store":
            super().visit_Tuple(node, frame)
        else:
            self._hold(node, frame, super().visit_Tuple)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self._hold(node, frame, super().visit_List)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self._hold(node, frame, super().visit_Dict)

    def _hold(self, node: Any, frame: Frame, visit: Any) -> None:
        if _is_plain(node):
            visit(node, frame)
            return
        self.write("environment.hold(")
        visit(node, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        volatile = "(markup_join if context.eval_ctx.volatile else str_join)"
        join = (
            volatile
            if frame.eval_ctx.volatile
            else "markup_join"
            if frame.eval_ctx.autoescape
            else "str_join"
        )
        self.write(f"{join}(environment.parts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        first = node.ops[0]
        if len(node.ops) == 1 and _is_quick(node.expr, first):
            super().visit_Compare(node, frame)
            return
        self.write("environment.compare(")
        self.visit(node.expr, frame)
        for operand in node.ops:
            self.write(f", {_COMPARISONS[operand.op]!r}, ")
            self.visit(operand.expr, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.cut(")
        self.visit(node.node, frame)
        for edge in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            if edge is None:
                self.write("None")
            else:
                self.visit(edge, frame)
        self.write(")")


def _is_plain(node: nodes.Node) -> bool:
    """Return whether a value is a literal of the template, and so is small."""
    if isinstance(node, (nodes.List, nodes.Tuple)):
        return all(map(_is_plain, node.items))
    return isinstance(node, nodes.Const) or (isinstance(node, nodes.Dict) and not node.items)


def _is_quick(left: nodes.Expr, operand: nodes.Operand) -> bool:
    """Return whether a comparison is with a literal, which bounds its cost."""
    if operand.op in ("in", "notin"):
        return _is_plain(operand.expr)
    return _is_plain(left) or _is_plain(operand.expr)
