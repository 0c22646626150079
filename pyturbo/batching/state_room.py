"""How much memory the conversations of a server take, where nobody says."""

from __future__ import annotations

from pyturbo._machine import available_memory
from pyturbo.model import Model

_LEAST = 4  # weights leave at least this part of the free memory: mapped files need not be in memory whole
_SHARE = 2  # part of what is left that conversations take; programs, prompts and others have the rest


def free_for_states(weights: int) -> int:
    """Return the bytes for all conversations, before models are loaded whose weights take `weights` bytes.

    It is half of the free memory that the weights leave, which is taken to be at least a quarter of it.

    Examples:
        >>> from pyturbo.batching.state_room import free_for_states
        >>> free_for_states(10**18) > 0  # whatever the weights take
        True
    """
    free = available_memory()
    return max(free - weights, free // _LEAST) // _SHARE


def state_room(model: Model, on_host: int, models: int, context: int) -> int | None:
    """Return the bytes for the conversations of one of several models, when it is loaded; None: no limit.

    `on_host` are those of all models on devices that use the memory of this machine. A device with memory of
    its own gives half of what the weights have left there. One conversation of `context` tokens always has
    room: a model that refuses all of them is of no use. A model with a budget refuses by itself.
    """
    if model.runner.budget is not None:
        return None
    own = model.device.memory
    share = (on_host if own is None else own.free // _SHARE) // models
    return max(share, one_conversation(model, context))


def one_conversation(model: Model, context: int) -> int:
    """Return the bytes of a conversation of `context` tokens, at least the fewest that engines give one."""
    return model.runner.layout(model.runner.context_for(context)).nbytes
