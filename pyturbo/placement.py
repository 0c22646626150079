"""Where the experts of a model are used from: from their mapped files, or from slots in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyturbo import models
from pyturbo._device import Device
from pyturbo._machine import available_memory, used_memory
from pyturbo._messages import least_size, shown, size
from pyturbo._traits import DeviceMemory
from pyturbo.checkpoint import Checkpoint
from pyturbo.checkpoint.origin import Origin
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.describe import Survey, survey
from pyturbo.engine.budget import HEADROOM, Budget
from pyturbo.engine.runner import Runner, conversation_bytes
from pyturbo.errors import AllocationError, ArgumentError, TurboError
from pyturbo.layers.kv_cache import kv_format
from pyturbo.layers.step import KvFormat
from pyturbo.streaming import MappedExperts, Policy, StreamedExperts
from pyturbo.streaming.speed import ModelSpeed
from pyturbo.text import Tokenizer

#: The share of free memory that a model takes if the caller does not say how much.
_SHARE = 0.8

#: Experts stay in their mapped files if a conversation of so many tokens fits beside all weights.
_CONTEXT = 8192

#: Tokens of the conversation that must fit.
SHORT = 512


@dataclass(frozen=True)
class Placement:
    """The decision, and what was opened for it.

    Attributes:
        budget: The memory that the model may take; None if nothing limits it.
        tokenizer: The tokenizer, if it was needed to know how much memory it takes.
    """

    budget: Budget | None = None
    tokenizer: Tokenizer | None = None

    def require_room(self, runner: Runner) -> None:
        """Raise an AllocationError that names the least memory if there is none for a short conversation."""
        if self.budget is None:
            return
        context = min(SHORT, runner.network.context)
        try:
            runner.require_room(context)
        except AllocationError as error:
            raise AllocationError(f"memory: no conversation of {context} tokens fits: {error}") from None

    def close(self) -> None:
        """Close what was opened, after an error."""
        if self.budget is not None:
            self.budget.close()


def place_experts(
    checkpoint: Checkpoint, device: Device, kv: KvFormat, memory: int | None, policy: Policy | None
) -> Placement:
    """Decide where the experts of a checkpoint are used from, and open that memory for its weights.

    `memory` is all that the process may take, None most of what is free. A device with memory of its own has
    copies of all weights, or of all but the experts, which then have slots in memory of the host.
    """
    policy = _probed(checkpoint, device) if policy is None else _checked(policy, checkpoint)
    own_memory, limit = device.memory, device.working_set
    limited = memory is not None or own_memory is not None or limit is not None
    if not limited and not isinstance(checkpoint, PackedCheckpoint):
        return Placement()
    found = survey(checkpoint)

    def conversation(context: int) -> int:
        return conversation_bytes(found.network, device, kv, context, streamed=False)

    own = used_memory()
    total = own + int(available_memory() * _SHARE) if memory is None else memory
    given = f"got {size(total)}"
    if memory is None:
        given = f"but {size(total)} may be used: this process and {_SHARE * 100:.0f} % of free memory"
    if limit is not None and own + limit < total:
        total = own + limit
        given = f"but {size(total)} may be used: this process and the working set of the device"
    if not isinstance(checkpoint, PackedCheckpoint):
        mode = "mapped"
    elif policy.mode == "auto":
        need, room = found.weights.nbytes + conversation(_CONTEXT), total - own - HEADROOM
        if own_memory is not None:
            room = own_memory.free if memory is None else min(room, own_memory.free)
        mode = "mapped" if need <= room else "stream"
    else:
        mode = policy.mode
    if limit is not None and mode == "mapped":
        require_working_set(limit, found.weights.nbytes + conversation(SHORT))
    if own_memory is not None:
        streamed_bytes = found.parts["experts"].nbytes if mode == "stream" else 0
        _require_on_device(own_memory, found.weights.nbytes - streamed_bytes, conversation(SHORT))
    elif mode == "mapped" and isinstance(checkpoint, PackedCheckpoint):
        checkpoint.experts = MappedExperts(device, checkpoint.record_files(), checkpoint.mappings(), policy)
        found = replace(found, network=models.outline(checkpoint)[0])
    if mode == "mapped" and memory is None:
        return Placement()
    tokenizer = _tokenizer(checkpoint)
    own = used_memory()
    weights = found.weights.nbytes
    if mode == "mapped":
        loading = own + found.mapped_bytes + found.peak_bytes
        hint = ""
        if isinstance(checkpoint, PackedCheckpoint):
            hint = '; mode "stream" needs less'
        elif "experts" in found.parts:
            hint = "; `pyturbo pack` writes a copy that needs less"
        _require(total, max(own + weights + conversation(SHORT), loading), "weights", given + hint)
        return Placement(Budget(total, own + weights), tokenizer)
    assert isinstance(checkpoint, PackedCheckpoint)
    fixed = own + weights - found.parts["experts"].nbytes
    files = checkpoint.record_files()
    streamed = StreamedExperts(device, files, total - fixed - HEADROOM, policy, found.choices)
    checkpoint.experts = streamed
    try:
        need = streamed_need(checkpoint, found, own, streamed_conversation(checkpoint, device, kv))
        _require(total, need, "weights without experts", given)
    except BaseException:
        streamed.close()
        raise
    return Placement(Budget(total, fixed, streamed), tokenizer)


def streamed_runner(checkpoint: PackedCheckpoint, device: Device, nbytes: int, policy: Policy) -> Runner:
    """Build a network whose experts have slots of `nbytes`, however much memory the rest takes."""
    choices = survey(checkpoint).choices
    experts = StreamedExperts(device, checkpoint.record_files(), nbytes, policy, choices)
    checkpoint.experts = experts
    try:
        network = models.build(checkpoint)
        return Runner(network, device, kv_format("f16"), Origin(checkpoint), Budget(1 << 62, 0, experts))
    except BaseException:
        experts.close()
        raise


def streamed_conversation(checkpoint: PackedCheckpoint, device: Device, kv: KvFormat) -> int:
    """Return the memory of a short conversation, with its programs, once the experts are streamed."""
    network, _ = models.outline(checkpoint)
    return conversation_bytes(network, device, kv, SHORT, streamed=True)


def streamed_need(checkpoint: PackedCheckpoint, found: Survey, own: int, conversation: int) -> int:
    """Return the least memory for streamed experts, without HEADROOM.

    `own` is what the process takes by itself, `conversation` what a conversation and its programs do.
    """
    experts = found.parts["experts"].nbytes
    fixed = own + found.weights.nbytes - experts
    loading = own + found.mapped_bytes - experts + found.peak_bytes
    return max(fixed + StreamedExperts.least_bytes(checkpoint.record_files()) + conversation, loading)


def _probed(checkpoint: Checkpoint, device: Device) -> Policy:
    """Return the policy that was found to be the fastest for this disk, model and device."""
    policy = Policy.of(checkpoint.path)
    if not isinstance(checkpoint, PackedCheckpoint):
        return policy
    experts = sum(file.experts * file.stride for file in checkpoint.record_files())
    model = ModelSpeed.of(checkpoint.path, checkpoint.stated_fingerprint(), experts)
    ahead = model is not None and model.is_of(device) and model.ahead
    return replace(policy, ahead=ahead)


def _checked(policy: Policy, checkpoint: Checkpoint) -> Policy:
    if not isinstance(policy, Policy):
        raise ArgumentError(f"load: policy: expected a Policy, got {shown(policy)}")
    if policy.mode == "stream" and not isinstance(checkpoint, PackedCheckpoint):
        raise ArgumentError(
            f"load: policy: mode: {checkpoint.path} is not packed, so that its experts cannot be streamed; "
            "`pyturbo pack` writes a packed copy"
        )
    return policy


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """Return the tokenizer. What is wrong with it is an error when it is used."""
    try:
        return Tokenizer(checkpoint.tokenizer)
    except TurboError:
        return None


def _require_on_device(memory: DeviceMemory, weights: int, conversation: int) -> None:
    """Require memory of the device for weights, which are copied to it, and for a conversation."""
    if weights + conversation > memory.free:
        raise AllocationError(
            f"device: expected at least {least_size(weights + conversation)} of free memory for weights and "
            f"a conversation, got {size(memory.free)} of {size(memory.total)}"
        )


def require_working_set(limit: int, need: int) -> None:
    """Require that weights and a conversation fit into the memory that a GPU may use of the host's."""
    if need > limit:
        raise AllocationError(
            f"device: expected a working set of at least {least_size(need)} for weights and a conversation, "
            f"got {size(limit)}; `sudo sysctl iogpu.wired_limit_mb=N` sets it on a Mac"
        )


def _require(total: int, need: int, weights: str, given: str) -> None:
    """Require memory for the process, for weights that are always there, and for a conversation."""
    need += HEADROOM
    if need > total:
        what = f"this process, {weights} and a conversation"
        raise AllocationError(f"memory: expected at least {least_size(need)} for {what}, {given}")
