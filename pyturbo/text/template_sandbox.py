"""A sandbox for untrusted templates: every rendering has a budget."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from contextlib import suppress
from functools import wraps
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import UndefinedError, nodes
from jinja2.filters import make_multi_attrgetter
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from pyturbo.text import template_checks as checks
from pyturbo.text.template_budget import Budget, Counted, CountedOnce
from pyturbo.text.template_compiler import LOOP, STEPS, Compiler, prepare

_CALL = 10  # steps that a call counts as
_BUILT_IN = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset, range, type)
_CLOSED = (bytes, KeysView, ItemsView, ValuesView)  # templates use none of their methods
_METHODS = (BuiltinMethodType, MethodType)  # Markup has methods of the second type
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}
_COMPARING_TESTS = {
    "==": ("==", "eq", "equalto"),
    "!=": ("!=", "ne"),
    ">": (">", "gt", "greaterthan"),
    ">=": (">=", "ge"),
    "<": ("<", "lt", "lessthan"),
    "<=": ("<=", "le"),
    "in": ("in",),
}


class ShortNamespace(Namespace):
    """A namespace whose repr omits its content, which may be anything."""

    def __repr__(self) -> str:
        return "<Namespace>"


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja with a budget of the rendering thread for everything that can be long or large.

    `run` sets the budget. The size of a value of the template is limited, so that any operation of Jinja and
    Python on one value is bounded; loops, calls and created text are counted.
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))
    code_generator_class = Compiler

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, optimized=False, finalize=self._output)
        self._running = threading.local()
        self.globals.pop("lipsum", None)
        self.globals["namespace"] = ShortNamespace
        for name in checks.MISSING:
            self.filters.pop(name, None)
        for name, function in self.filters.items():
            self.filters[name] = self._checked_filter(name, function)
        self.filters[LOOP] = lambda values, steps: _counted(self.budget, values, steps)
        self.filters[STEPS] = lambda _, steps: self.budget.spend(steps)
        for sign, names in _COMPARING_TESTS.items():
            self.tests |= dict.fromkeys(names, _comparison(self, sign))
        for name in ("lower", "upper"):
            test: Any = self.tests[name]
            self.tests[name] = self._checked_filter(name, test)
        self.filters["tojson"] = self._to_json

    @property
    def budget(self) -> Budget:
        """Return the budget of the rendering of this thread."""
        return self._running.budget  # type: ignore[no-any-return]

    def run(self, budget: Budget, render: Callable[[], str]) -> str:
        """Render with a budget."""
        before = getattr(self._running, "budget", None)
        self._running.budget = budget
        try:
            return render()
        finally:
            self._running.budget = before

    # Compiled templates call the following methods.

    def hold(self, value: Any) -> Any:
        """Check a list, tuple or dict that the template creates."""
        self.budget.make_entries(len(value))
        if type(value) is dict:
            self.budget.read(self.budget.size(value.keys()))  # the keys have been hashed
        return self.budget.hold(value)

    def parts(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Check values that are about to be concatenated."""
        self.budget.make(sum(map(self.budget.size, values)))
        return values

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.budget.spend(1)
        if type(argument) is tuple:
            self.budget.read(self.budget.size(argument))
        return super().getitem(obj, argument)

    def cut(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """Return a slice."""
        return self._made(value[start:stop:step])

    def compare(self, left: Any, *rest: Any) -> Any:
        """Compare `left` with the rest, which alternates operators and values."""
        result: Any = True
        for sign, right in zip(rest[::2], rest[1::2]):
            result = self._compare(sign, left, right)
            if not result:
                return result
            left = right
        return result

    def _compare(self, sign: str, left: Any, right: Any) -> Any:
        budget = self.budget
        if sign in ("in", "not in"):
            if isinstance(right, dict):
                budget.read(budget.size(left))
            elif isinstance(right, (str, bytes)):
                budget.read(len(right))
            elif hasattr(right, "__len__"):
                budget.read(budget.size(right))
            elif hasattr(right, "__next__"):
                right = budget.counted(right)
        else:
            budget.read(min(budget.size(left), budget.size(right)))
        return _COMPARE[sign](left, right)

    def concat(self, parts: Iterable[str]) -> str:
        """Return all text of a block, or of the template."""
        kept, make = [], self.budget.make
        for part in parts:
            make(len(part))
            kept.append(part)
        return "".join(kept)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = self.budget
        if operator == "+" and type(left) is str and type(right) is str:
            budget.make(len(left) + len(right))
            return left + right
        if operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            _room_for(budget, left, len(left) + len(right))
        elif operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if isinstance(count, int) and hasattr(sequence, "__len__"):
                    _room_for(budget, sequence, len(sequence) * max(count, 0))
        elif operator == "%" and isinstance(left, (str, bytes)):
            checks.percent_format(budget, left if isinstance(left, str) else left.decode("latin-1"), right)
        elif operator == "**":
            checks.check_power(left, right)
        result = super().call_binop(context, operator, left, right)
        checks.check_number(result)
        return budget.hold(result)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        self, function = __self, __obj
        budget = self.budget
        budget.spend(_CALL)
        if isinstance(function, LoopContext) and args:
            args = (_counted(budget, args[0], self.steps), *args[1:])
        elif isinstance(function, _METHODS) and isinstance(function.__self__, _BUILT_IN):
            args = self._checked_method(function, args, kwargs)
        elif isinstance(function, type):
            budget.read(budget.size(args) + budget.size(kwargs))
            if issubclass(function, (dict, Namespace)):
                args = tuple(map(self._entries, args))
        return self._made(super().call(__context, function, *args, **kwargs))

    def _checked_method(
        self, method: BuiltinMethodType | MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Return the arguments to use."""
        owner, budget = method.__self__, self.budget
        for value in (owner, *args, *kwargs.values()):
            budget.read(budget.size(value))
        if isinstance(owner, str):
            if method.__name__ == "join" and args:
                return (checks.FILTERS["join"](budget, args[0], (owner,), {}),)
            if method.__name__ in checks.METHODS:
                checks.METHODS[method.__name__](budget, owner, args, kwargs)
        return tuple(budget.counted(value) if hasattr(value, "__next__") else value for value in args)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if attr in checks.UNSAFE_METHODS and isinstance(obj, _BUILT_IN):
            return False
        if isinstance(obj, _CLOSED):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        formatted = super().wrap_str_format(value)
        if formatted is None:
            return None

        def checked(*args: Any, **kwargs: Any) -> str:
            checks.brace_format(self.budget, value.__self__, (args, kwargs))
            return formatted(*args, **kwargs)

        return checked

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        self.steps = prepare(source)
        return super()._generate(source, *args, **kwargs)

    def _output(self, value: Any) -> Any:
        """Check a value in {{ }} before it is converted to text."""
        if type(value) is not str:
            self.budget.make(self.budget.size(value))
        return value

    def _made(self, value: Any) -> Any:
        """Count a new value."""
        budget = self.budget
        if type(value) is str or isinstance(value, (str, bytes)):
            budget.make(len(value))
        elif isinstance(value, (list, tuple, dict, set, frozenset)):
            budget.make_entries(len(value))
            budget.hold(value)
        else:
            checks.check_number(value)
        return value

    def _checked_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        passed = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja passes its own argument first
        check, shallow = checks.FILTERS.get(name), name in checks.SHALLOW
        iterates, attribute = name in checks.ITERATING, checks.ATTRIBUTES.get(name)

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            budget = self.budget
            value, rest = args[passed], args[passed + 1 :]
            if isinstance(value, str):
                budget.read(len(value))
                if iterates:
                    budget.make_entries(len(value))
            elif hasattr(value, "__next__"):
                value = budget.counted(value)
            elif shallow:
                budget.spend(1)
            else:
                budget.read(budget.size(value))
            if attribute is not None:
                value = self._looked_up(value, checks.argument(rest, kwargs, attribute, "attribute", None))
            if check is not None:
                value = check(budget, value, rest, kwargs)
            return self._made(function(*args[:passed], value, *rest, **kwargs))

        return checked

    def _looked_up(self, value: Any, attribute: Any) -> Any:
        """Return the entries to use, after counting the attribute of each."""
        checks.check_attribute(attribute)
        if attribute is None:
            return value
        entries = list(self.budget.counted(value))
        of_entry = make_multi_attrgetter(self, attribute)
        with suppress(UndefinedError):  # the filter may have a default
            for entry in entries:
                self.budget.make(sum(map(self.budget.size, of_entry(entry))))
        return entries

    def _entries(self, value: Any) -> Any:
        """Check an argument of dict, which hashes its entries."""
        whole = isinstance(value, (str, Mapping)) or not hasattr(value, "__iter__")
        return value if whole else iter(self.budget.counted(value))

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return checks.to_json(self.budget, value, ensure_ascii, indent, separators, sort_keys)


def _counted(budget: Budget, values: Any, steps: int) -> CountedOnce:
    return (Counted if hasattr(values, "__len__") else CountedOnce)(budget, values, steps)


def _comparison(environment: BudgetedEnvironment, sign: str) -> Callable[[Any, Any], Any]:
    return lambda left, right: environment.compare(left, sign, right)


def _room_for(budget: Budget, sequence: Any, length: int) -> None:
    if isinstance(sequence, (str, bytes)):
        budget.make(length)
    else:
        budget.make_entries(length)
