"""What a packed checkpoint needs at least, and how fast it is expected to be with more memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyturbo._device import Device, device_list
from pyturbo._machine import used_memory
from pyturbo._messages import GROWTH
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.describe import survey
from pyturbo.engine.budget import HEADROOM
from pyturbo.layers.kv_cache import kv_format
from pyturbo.placement import streamed_conversation, streamed_need
from pyturbo.streaming import Policy, RecordFile, StreamedExperts
from pyturbo.streaming.disk import DiskSpeed
from pyturbo.streaming.speed import ModelSpeed

#: Shares of the experts in memory that a forecast lists.
_SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Outlook:
    """What is expected of a model with so much memory.

    Attributes:
        memory: Bytes for the whole process.
        share: Share of the experts that are in memory; None if the memory is too small for the model.
        read_bytes: Bytes that a token reads on average; None if unknown.
        tokens_per_second: Speed of decoding; None if unknown.
    """

    memory: int
    share: float | None
    read_bytes: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class Forecast:
    """The memory and speed of a packed checkpoint on this machine.

    Attributes:
        expert_bytes: Bytes of all experts.
        other_bytes: Bytes of all other weights.
        least_memory: The least memory for this process, its weights, and a short conversation with its
            programs.
        basis: "probe": speeds follow from a probe of this model; "disk": from the speed of the disk alone,
            with every expert as likely as the others; None: there was no probe.
        device: The device of the probe of the model.
        outlooks: By memory, ascending.
    """

    expert_bytes: int
    other_bytes: int
    least_memory: int
    basis: str | None
    device: str | None
    outlooks: tuple[Outlook, ...]

    def facts(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def forecast(checkpoint: PackedCheckpoint, memory: int | None = None) -> Forecast:
    """Compute what is expected with several amounts of memory, and with `memory` if that is given."""
    found, files = survey(checkpoint), checkpoint.record_files()
    conversation = _conversation_bytes(checkpoint)
    experts = sum(file.experts * file.stride for file in files)
    model = ModelSpeed.of(checkpoint.path, checkpoint.stated_fingerprint(), experts)
    disk = DiskSpeed.of(checkpoint.path)
    other = found.weights.nbytes - found.parts["experts"].nbytes
    slots = StreamedExperts.least_bytes(files)
    own = used_memory()
    fixed = own + other + max(conversation + HEADROOM, 0 if model is None else model.own_bytes)
    least = max(fixed + slots, streamed_need(checkpoint, found, own, conversation) + HEADROOM) + GROWTH
    amounts = {fixed + int(share * experts) for share in _SHARES}
    amounts = {amount for amount in amounts if amount > least} | {least}
    outlooks = []
    for amount in sorted(amounts | (set() if memory is None else {memory})):
        share = min(1.0, (amount - fixed) / experts)
        if amount < least:
            outlooks.append(Outlook(amount, None))
        elif model is not None:
            speed = model.tokens_per_second(share)
            outlooks.append(Outlook(amount, share, model.read_bytes(share), speed))
        else:
            outlooks.append(_estimate(amount, share, files, found.choices, disk))
    basis = "probe" if model is not None else "disk" if disk is not None else None
    device = None if model is None else model.device
    return Forecast(experts, other, least, basis, device, tuple(outlooks))


def _conversation_bytes(checkpoint: PackedCheckpoint) -> int:
    """Return the memory of a short conversation and of its programs, on the best device here."""
    device = Device(device_list()[0])
    experts = StreamedExperts(device, checkpoint.record_files(), 0, Policy())
    checkpoint.experts = experts
    try:
        return streamed_conversation(checkpoint, device, kv_format("f16"))
    finally:
        checkpoint.experts = None
        experts.close()


def _estimate(
    memory: int, share: float, files: list[RecordFile], choices: int, disk: DiskSpeed | None
) -> Outlook:
    """Estimate reads from sizes alone, and the speed from them and the disk, as if nothing was computed."""
    nbytes = sum(choices * file.stride for file in files) * (1 - share)
    speed = None if disk is None or not nbytes else disk.best.bandwidth / nbytes
    return Outlook(memory, share, nbytes, speed)
