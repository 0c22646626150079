"""Modules that can be called."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(module: str, function: Callable[..., Any]) -> None:
    """Let the module of this name be called as `function`, with its signature and documentation."""

    class CallableModule(ModuleType):
        __signature__ = inspect.signature(function)

        @functools.wraps(function)
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    sys.modules[module].__class__ = CallableModule
