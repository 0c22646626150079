"""Steps of a model with random weights: launches, waits, times of host and device, and tokens per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np

from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._program import Cursor, Program
from pyturbo.bench.gpu.random_model import BlankWeights, random_runner, runner_of
from pyturbo.bench.gpu.reason import reason
from pyturbo.bench.peers import random_moe
from pyturbo.bench.peers.random_moe import Shape
from pyturbo.bench.stream.synthetic import SHAPE
from pyturbo.engine.generation import Options, Stats
from pyturbo.engine.profile import Profile
from pyturbo.engine.reply import Reply, chunks_of, steps_of
from pyturbo.engine.runner import Runner
from pyturbo.engine.session import Session, at_position
from pyturbo.engine.together import step_together
from pyturbo.errors import DeviceError
from pyturbo.placement import require_working_set

Tell = Callable[[str], None]

_SHAPE = replace(SHAPE, context=65_536)
_SHOWN = 12  # kernels of a step


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        shape: Of the model.
        contexts: Positions at which tokens are decoded, with the tokens per second to reach on an H200.
        tokens: Tokens to decode at each.
        replays: Steps of one conversation whose parts are timed at each.
        at_once: Numbers of conversations that decode together, at the first of the positions.
        prompt: Tokens of the prompt.
        prompt_goal: Tokens per second to reach.
        kv: The format of keys and values.
    """

    shape: Shape = _SHAPE
    contexts: tuple[tuple[int, float], ...] = ((1024, 400.0), (32_768, 300.0))
    tokens: int = 32
    replays: int = 200
    at_once: tuple[int, ...] = (4, 8, 32)
    prompt: int = 4096
    prompt_goal: float = 8000.0
    kv: str = "f16"


#: Small enough for a processor and for tests.
QUICK = Plan(
    Shape(128, 4, 512, 4, 2, 64, 2, 4, 64, 8, 2, 64, 64, context=1024),
    ((64, 400.0), (300, 300.0)),
    tokens=3,
    replays=3,
    at_once=(3,),
    prompt=20,
)


@dataclass(frozen=True)
class KernelShare:
    """All launches of one kernel in a step."""

    kernel: str
    launches: int
    us: float


@dataclass(frozen=True)
class StepRow:
    """One kind of step.

    Attributes:
        work: What was measured.
        speed: Tokens per second as a caller sees them, with the choice of each token; of conversations that
            decode together the sum, without it.
        launches: Of one replay.
        waits: Launches that wait for others: the barriers of a device that runs them in order.
        step_us: Microseconds of a replay, from the call until its end.
        host_us: Microseconds until the host has handed over a replay: the median of many.
        host_us_90: What 90 % of these stay below.
        ahead_us: Microseconds in which the host prepares the next replay, while the device is at work.
        device_us: Microseconds of a replay when others follow at once.
        kernels: Those that take longest if launches are timed one by one.
        goal: Tokens per second to reach on an H200.
        error: Why there are no figures.
    """

    work: str
    speed: float | None = None
    launches: int = 0
    waits: int = 0
    step_us: float | None = None
    host_us: float | None = None
    host_us_90: float | None = None
    ahead_us: float | None = None
    device_us: float | None = None
    kernels: list[KernelShare] = field(default_factory=list)
    goal: float | None = None
    error: str = ""


class ReplayTimes(NamedTuple):
    """Microseconds of the replay of a step: see `StepRow`. `least_host_us` is the best of `host_us`."""

    step_us: float
    host_us: float
    host_us_90: float
    least_host_us: float
    ahead_us: float
    device_us: float


@dataclass(frozen=True)
class ModelReport:
    """The figures of a model, and the time until it was ready."""

    model: str
    load_seconds: float
    state_bytes: int
    rows: list[StepRow]


def measure(device: Device, plan: Plan, tell: Tell) -> ModelReport:
    """Measure a model of that shape. What fails has a row with the reason."""
    shape = plan.shape
    name = f"qwen3_5_moe, {shape.layers} layers, {shape.experts} experts, 4 bits, random; {plan.kv}"
    begin = time.perf_counter()
    try:
        if device.working_set is not None:
            require_working_set(device.working_set, needed_bytes(device, plan))
        runner = random_runner(device, shape, plan.kv, tell)
        tell("recording a step")
        nbytes = _warm_up(runner, plan)
    except Exception as error:  # there may be too little memory, for example
        failed = StepRow("loading", error=reason(error))
        return ModelReport(name, time.perf_counter() - begin, 0, [failed])
    ready = time.perf_counter() - begin
    is_goal = "H200" in device.properties.get("name", "") and shape == Plan.shape
    rows = []
    for position, goal in plan.contexts:
        tell(f"decoding at {position} tokens")
        work = f"decode at {position} tokens"
        decode = partial(_decode, runner, position, plan)
        rows.append(_guarded(work, goal if is_goal else None, decode))
    for count in plan.at_once:
        tell(f"decoding in {count} conversations")
        first = plan.contexts[0][0]
        work = f"decode at {first} tokens, {count} at once"
        rows.append(_guarded(work, None, partial(_decode_together, runner, first, plan, count)))
    tell(f"reading a prompt of {plan.prompt} tokens")
    work = f"prompt of {plan.prompt} tokens"
    rows.append(_guarded(work, plan.prompt_goal if is_goal else None, partial(_prefill, runner, plan.prompt)))
    runner.close()
    return ModelReport(name, ready, nbytes, rows)


def needed_bytes(device: Device, plan: Plan) -> int:
    """Count the bytes of weights and of all conversations that exist at the same time."""
    weights = BlankWeights()
    with closing(runner_of(device, random_moe.config(plan.shape), weights, plan.kv)) as runner:
        together = runner.layout(_context(runner, plan.contexts[0][0] + 2 * plan.tokens))
        longest = runner.layout(_context(runner, plan.contexts[-1][0] + 3 * plan.tokens + 2 * plan.replays))
    return weights.nbytes + max(max(plan.at_once) * together.nbytes, 2 * longest.nbytes)


def _guarded(work: str, goal: float | None, measured: Callable[[], StepRow]) -> StepRow:
    try:
        return replace(measured(), work=work, goal=goal)
    except Exception as error:  # whatever it is, other steps go on
        return StepRow(work, goal=goal, error=reason(error))


def _warm_up(runner: Runner, plan: Plan) -> int:
    """Bring weights to the device, compile, and run the first programs; return the bytes of a state."""
    runner.prepare(_context(runner, plan.prompt))
    with Session(runner, _context(runner, plan.prompt)) as session:
        session.prefill(np.zeros(runner.traits.single + 1, np.int32))
        _require_finite(session.step(0))
        return session.nbytes


def _context(runner: Runner, tokens: int) -> int:
    return runner.context_for(tokens + 1)


def _require_finite(logits: np.ndarray) -> None:
    if not np.isfinite(logits).all():
        raise DeviceError("logits: expected finite values")


def _decode(runner: Runner, position: int, plan: Plan) -> StepRow:
    context = _context(runner, position + 3 * plan.tokens + 2 * plan.replays)
    session = at_position(runner, context, position)
    _require_finite(session.step(1))
    _reply(session, 4)
    speed = max(_reply(session, plan.tokens + 1).decode_speed for _ in range(2))
    profile = session.profile()
    with runner.program(context, 1, "last") as (_, graph):
        blocks = [runner.allocate(runner.layout(context))]
        times = replay_times(runner.device, graph.program, blocks, position, plan.replays)
        return _step_row(graph.program, speed, times, _kernels(profile))


def _decode_together(runner: Runner, position: int, plan: Plan, count: int) -> StepRow:
    tokens = plan.tokens
    context = _context(runner, position + 2 * tokens)
    sessions = [at_position(runner, context, position) for _ in range(count)]
    rows = np.random.default_rng(0).integers(0, runner.network.vocab, (tokens + 1, count)).tolist()
    step_together(sessions, rows.pop())
    _require_finite(sessions[-1].logits)
    begin = time.perf_counter()
    for row in rows:
        step_together(sessions, row)
    seconds = (time.perf_counter() - begin) / tokens
    for session in sessions:
        session.close()
    with runner.batch((context,) * count) as graph:
        blocks = [runner.allocate(runner.layout(context)) for _ in range(count)]
        times = replay_times(runner.device, graph.program, blocks, position, tokens)
        return _step_row(graph.program, count / seconds, times, [])


def _step_row(program: Program, speed: float, times: ReplayTimes, kernels: list[KernelShare]) -> StepRow:
    listing = program.listing()
    return StepRow(
        "",
        speed,
        len(listing),
        sum(launch.waits for launch in listing),
        times.step_us,
        times.host_us,
        times.host_us_90,
        times.ahead_us,
        times.device_us,
        kernels,
    )


def _reply(session: Session, tokens: int) -> Stats:
    """Continue with the likeliest tokens, as a caller does."""
    stats = Stats()
    steps = steps_of(session, [1], Options(tokens), stats, tokenizer=None, eos_ids=(), whole=False)
    for _ in Reply(session, chunks_of(session, steps), stats):
        pass
    return stats


def replay_times(
    device: Device, program: Program, blocks: Sequence[Buffer], position: int, count: int
) -> ReplayTimes:
    """Time replays of a step without the draw of a token, from a position in each of the blocks on.

    The next replay is prepared while the device is at work, as by a step (`Program.run`, `ahead`).
    """
    symbols: dict[str, Any] = dict.fromkeys(program.symbols, 0)
    for name in symbols:
        if name.startswith("position"):
            symbols[name] = cursor = Cursor()
            cursor.position = position
    program.run(blocks, advance=1, ahead=True, **symbols)
    whole, host, ahead = [], [], []
    for _ in range(count):
        begin = time.perf_counter()
        program.run(blocks, wait=False, advance=1, **symbols)
        handed = time.perf_counter()
        program.prepare(blocks, **symbols)
        prepared = time.perf_counter()
        device.synchronize()
        whole.append(1e6 * (time.perf_counter() - begin))
        host.append(1e6 * (handed - begin))
        ahead.append(1e6 * (prepared - handed))
    begin = time.perf_counter()
    for _ in range(count):
        program.run(blocks, wait=False, advance=1, **symbols)
    device.synchronize()
    in_row = 1e6 * (time.perf_counter() - begin) / count
    most = quantiles(host, n=10, method="inclusive")[-1]
    return ReplayTimes(median(whole), median(host), most, min(host), median(ahead), in_row)


def _prefill(runner: Runner, tokens: int) -> StepRow:
    ids = np.random.default_rng(0).integers(0, runner.network.vocab, tokens)
    seconds = []
    for _ in range(2):
        with Session(runner, _context(runner, tokens)) as session:
            begin = time.perf_counter()
            _require_finite(session.prefill(ids))
            seconds.append(time.perf_counter() - begin)
    with Session(runner, _context(runner, tokens)) as session:
        session.timings = profile = Profile()
        session.prefill(ids[: runner.traits.chunk])
    with runner.program(_context(runner, tokens), tokens, "last") as (_, graph):
        listing = graph.program.listing()
    return StepRow(
        "",
        tokens / min(seconds),
        len(listing),
        sum(launch.waits for launch in listing),
        kernels=_kernels(profile),
    )


def _kernels(profile: Profile) -> list[KernelShare]:
    rows = profile.rows()[:_SHOWN]
    return [KernelShare(row.kernel, row.launches, row.seconds * 1e6) for row in rows]
