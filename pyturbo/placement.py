"""Where the experts of a model are used from: from their mapped files, or from slots in memory."""

from __future__ import annotations

from pyturbo._machine import available_memory, used_memory
from pyturbo._messages import size
from pyturbo._native import Device
from pyturbo.checkpoint import Checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.describe import Survey, survey
from pyturbo.engine.budget import Budget
from pyturbo.errors import AllocationError
from pyturbo.streaming import Policy, StreamedExperts

#: The share of free memory that a model takes if the caller does not say how much.
_SHARE = 0.8


def place_experts(
    checkpoint: Checkpoint, device: Device, memory: int | None, policy: Policy | None
) -> Budget | None:
    """Decide where the experts of a checkpoint are used from, and open that memory for its weights.

    `memory` is all that the process may take, None most of what is free. Returns the budget of a model that
    streams its experts; None if all weights fit, or if the checkpoint is not packed.
    """
    if memory is None and not isinstance(checkpoint, PackedCheckpoint):
        return None
    own, found = used_memory(), survey(checkpoint)
    total = own + int(available_memory() * _SHARE) if memory is None else memory
    need = own + found.weights.nbytes
    if not isinstance(checkpoint, PackedCheckpoint):
        _require(need <= total, total, need, found)
        return None
    policy = policy or Policy()
    mode = policy.mode
    if mode == "auto":
        mode = "mapped" if need <= total else "stream"
    if mode == "mapped":
        return None
    files = checkpoint.record_files()
    fixed = need - found.parts["experts"].nbytes
    least = fixed + StreamedExperts.least_bytes(files)
    _require(least <= total, total, least, found)
    experts = StreamedExperts(device, files, total - fixed, policy, found.choices)
    checkpoint.experts = experts
    return Budget(total, fixed, experts)


def _require(fits: bool, total: int, need: int, found: Survey) -> None:
    if fits:
        return
    packed = "; `pyturbo pack` writes a copy that needs less" if "experts" in found.parts else ""
    raise AllocationError(
        f"memory: expected at least {size(need)} for the weights and this process, got {size(total)}{packed}"
    )
