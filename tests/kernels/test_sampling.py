"""argmax against NumPy's, which has the same rules, and top_logits against a sort, on every device."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import symbol
from reference import sampling as reference


@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 31), (2, 1024), (5, 1025), (2, 151937), (1, 262144)])
def test_argmax(device, rng, rows, n):
    x = rng.standard_normal((rows, n), np.float32)
    (y,) = run_kernel(device, "argmax", x, Out((rows,), np.int32), rows, n)
    np.testing.assert_array_equal(y, reference.argmax(x))


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 4),
    n=st.integers(1, 3000),
    levels=st.sampled_from([1, 2, 50]),
    seed=st.integers(0, 99),
)
def test_argmax_any_shape_with_ties(device, rows, n, levels, seed):
    x = np.random.default_rng(seed).integers(-levels, levels, (rows, n)).astype(np.float32)
    np.testing.assert_array_equal(ops.argmax(x, device=device), reference.argmax(x))


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("n", [2048, 2049, 4100, 50_000, (1 << 20) + 1])
def test_argmax_of_long_rows(device, rng, monkeypatch, n, split):
    """Rows that many threadgroups share, which is for GPUs, and others."""
    traits = device.traits._replace(top_logits=64 if split else 0)
    monkeypatch.setattr("pyturbo.ops.sampling.traits_of", lambda target: traits)
    x = rng.integers(-3, 3, (3, n)).astype(np.float32)
    x[1] = -np.inf
    x[2, [n // 2, n - 1]] = np.nan
    np.testing.assert_array_equal(ops.argmax(x, device=device), [x[0].argmax(), 0, n // 2])


def test_argmax_of_many_long_rows(device):
    x = np.zeros((40, 2100), np.float32)
    x[np.arange(40), np.arange(40) * 50] = 1
    np.testing.assert_array_equal(ops.argmax(x, device=device), np.arange(40) * 50)


def test_a_recorded_argmax_of_a_length_that_is_known_later(device, rng):
    x, y = device.empty((1, 5000)), device.empty((1,), np.int32)
    x.write(rng.standard_normal((1, 5000), np.float32))
    recorder = Recorder(device, {"n": 5000})
    with recorder, recorder.into(Tensor(y, (1,), np.int32)):
        ops.argmax(Tensor(x, (1, symbol("n")), np.float32))
    recorder.program.run(n=3000)
    assert y.read()[0] == x.read()[0, :3000].argmax()


@pytest.mark.parametrize("at", [0, 1, 31, 32, 1023, 1024, 2999])
def test_argmax_finds_a_single_value_anywhere(device, at):
    x = np.full((2, 3000), -np.inf, np.float32)
    x[0, at] = -3e38
    x[1] = np.inf
    x[1, at] = np.nan
    np.testing.assert_array_equal(ops.argmax(x, device=device), [at, at])


def test_argmax_of_what_is_special(device):
    x = np.array(
        [
            [-np.inf, -np.inf, -np.inf, -np.inf],
            [-1, -0.0, 0.0, -0.0],
            [-1e-45, 0.0, 1e-45, 1e-45],
            [np.inf, np.nan, -np.nan, np.inf],
            [np.inf, -np.nan, np.nan, 1],
            [-3, -2, -1e-45, -1],
        ],
        np.float32,
    )
    np.testing.assert_array_equal(ops.argmax(x, device=device), [0, 1, 2, 1, 1, 2])


def check_top_logits(x, k, best, tokens, totals):
    values, order, sums = reference.top_logits(x, k)
    np.testing.assert_array_equal(tokens, order)
    np.testing.assert_array_equal(best, values)
    assert_close(totals, sums, "elementwise")


@pytest.mark.parametrize(
    ("rows", "n", "groups", "k"),
    [
        (1, 1, 1, 1),
        (3, 31, 1, 5),
        (2, 64, 2, 64),
        (1, 4096, 1, 40),
        (2, 4099, 3, 63),
        (1, 151937, 75, 64),
        (1, 1 << 20, 256, 64),
    ],
)
def test_top_logits(device, rng, rows, n, groups, k):
    x = rng.standard_normal((rows, n), np.float32) * 4
    parts = (rows, groups, k)
    part_values, part_tokens, m, l = run_kernel(  # noqa: E741
        device,
        "top_logits_partials",
        x,
        Out(parts),
        Out(parts, np.int32),
        Out((rows, groups)),
        Out((rows, groups)),
        rows,
        groups,
        n,
        k,
    )
    span = -(-n // groups)
    for part in range(groups):
        own = x[:, part * span : (part + 1) * span]
        count = min(k, own.shape[1])
        values, order, sums = reference.top_logits(own, count)
        places = np.argsort(part_tokens[:, part], axis=1)[:, k - count :]  # -1 stands for no value
        np.testing.assert_array_equal(
            np.take_along_axis(part_tokens[:, part], places, 1), np.sort(order, 1) + part * span
        )
        np.testing.assert_array_equal(m[:, part], values[:, 0])
        assert_close(l[:, part], sums, "elementwise")
    outputs = run_kernel(
        device,
        "top_logits_merge",
        part_values,
        part_tokens,
        m,
        l,
        Out((rows, k)),
        Out((rows, k), np.int32),
        Out((rows,)),
        rows,
        groups,
        k,
    )
    check_top_logits(x, k, *outputs)


@pytest.mark.spread
@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 3),
    n=st.integers(1, 5000),
    k=st.integers(1, 64),
    levels=st.sampled_from([1, 2, 50, 3000]),
    seed=st.integers(0, 99),
)
def test_top_logits_of_any_shape_with_ties(device, rows, n, k, levels, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-levels, levels, (rows, n)).astype(np.float32)
    x[rng.random((rows, n)) < 0.1] = -np.inf
    x[:, rng.integers(n)] = -0.0
    k = min(k, n)
    check_top_logits(x, k, *ops.top_logits(x, k, device=device))


@pytest.mark.parametrize("at", [0, 1, 31, 32, 255, 256, 2047, 2048, 2999])
def test_top_logits_finds_single_values_anywhere(device, at):
    x = np.full((4, 3000), -np.inf, np.float32)
    x[0, at] = -3e38
    x[1] = np.inf
    x[1, at] = np.nan
    x[2] = 1e-45
    x[2, at] = np.inf
    best, tokens, totals = ops.top_logits(x, 2, device=device)
    other = int(at == 0)
    np.testing.assert_array_equal(tokens, [[at, other]] * 3 + [[0, 1]])
    np.testing.assert_array_equal(best[:3, 0], [np.float32(-3e38), np.nan, np.inf])
    np.testing.assert_array_equal(best[3], [-np.inf, -np.inf])
    np.testing.assert_array_equal(totals, [1, np.nan, np.nan, 0])


def test_top_logits_of_far_apart_values(device):
    x = np.full((1, 5001), -1e30, np.float32)
    x[0, [7, 2500, 4999]] = [3e38, -3e38, 88]
    check_top_logits(x, 3, *ops.top_logits(x, 3, device=device))


@st.composite
def choices(draw):
    """Values and tokens by rank, and a rule with the arguments that it is made from."""
    k = draw(st.integers(1, 64))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = -np.sort(-rng.standard_normal(k).astype(np.float32) * draw(st.sampled_from([0.5, 4, 40])))
    values[draw(st.integers(1, 64)) :] = -np.inf
    tokens = rng.permutation(1000)[:k].astype(np.int32)
    options = {
        "top_k": draw(st.sampled_from([1, 2, 20, 64])),
        "top_p": draw(st.sampled_from([1.0, 0.3, 0.95])),
        "min_p": draw(st.sampled_from([0.0, 0.05])),
        "temperature": draw(st.sampled_from([0.05, 0.7, 1.0, 50.0])),
        "draw": draw(st.floats(2**-20, 1.0)),
        "forbidden": [int(token) for token in tokens[1 : 1 + draw(st.integers(0, 8))]],
    }
    return values, tokens, options


@pytest.mark.spread
@settings(max_examples=60, deadline=None)
@given(choice=choices())
def test_choose_token(device, choice):
    values, tokens, options = choice
    expected, distance = reference.choose_token(values, tokens, **options)
    assume(distance > 1e-5)
    drawn, seen = ops.choose_token(values, tokens, ops.choice_rule(**options), device=device)
    assert drawn == seen == expected


def test_choose_token_at_its_borders(device):
    def choose(values, tokens, *rule, **options):
        outputs = Out((1,), np.int32), Out((1,), np.int32)
        made = ops.choice_rule(*rule, **options)
        args = np.array(values, np.float32), np.array(tokens, np.int32), made, *outputs, len(values)
        drawn, seen = run_kernel(device, "choose_token", *args)
        assert drawn == seen
        return int(drawn[0])

    equal = [0.0] * 64
    for i in range(64):
        assert choose(equal, range(64), 64, draw=(i + 1) / 64) == i
        assert choose(equal, range(64), 64, draw=(i + 0.5) / 64) == i
    assert choose([1, 1, 0], [7, 9, 2], 1) == 7
    assert choose([1, 1, 0], [7, 9, 2], 1, forbidden=[7]) == 9
    assert choose([1, 1, 0], [7, 9, 2], 2, temperature=1e-30) == 9
    assert choose([1, 0, -np.inf], [7, 9, 2], 3) == 9
    assert choose([1, 0, -np.inf], [7, 9, -1], 3) == 9
    assert choose([0, -200], [7, 9], 2, temperature=1e30) == 9  # a weight of 0 may not stay 0
    assert choose([0, -200], [7, 9], 2, min_p=1e-30, temperature=1e30) == 7
    for unusable in ([np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]):
        assert choose(unusable, [7, 9], 2, top_p=0.5, draw=0.5) in (7, 9)


def test_refuses(device):
    with pytest.raises(errors.ArgumentError, match=r"argmax: x: expected shape \[any, any\], got \[3\]"):
        ops.argmax(np.zeros(3, np.float32), device=device)
    with pytest.raises(errors.ArgumentError, match="argmax: x: expected an array with at least one value"):
        ops.argmax(np.zeros((2, 0), np.float32), device=device)
    with pytest.raises(errors.ArgumentError, match=r"top_logits: k: expected 1 to 3, got 4"):
        ops.top_logits(np.zeros((1, 3), np.float32), 4, device=device)
    with pytest.raises(errors.ArgumentError, match=r"top_logits: k: expected 1 to 64, got 65"):
        ops.top_logits(np.zeros((1, 99), np.float32), 65, device=device)
    two = np.zeros(2, np.float32), np.zeros(2, np.int32)
    for options in ({"top_p": 0.0}, {"min_p": 1.5}, {"temperature": 0.0}, {"draw": np.nan}):
        (name,) = options
        with pytest.raises(errors.ArgumentError, match=f"choice_rule: {name}: expected a number"):
            ops.choice_rule(1, **options)
    with pytest.raises(errors.ArgumentError, match=r"choose_token: logits: values: expected 1 to 64, got 65"):
        ops.choose_token(np.zeros(65, np.float32), two[1], ops.choice_rule(1), device=device)
    with pytest.raises(errors.ArgumentError, match=r"choice_rule: top_k: expected 1 to 64, got 65"):
        ops.choice_rule(65)
    with pytest.raises(
        errors.ArgumentError, match="choice_rule: forbidden: expected at most 8 tokens, got 9"
    ):
        ops.choice_rule(1, forbidden=range(9))
    with pytest.raises(errors.ArgumentError, match=r"choose_token: rule: expected shape \[13\], got \[2\]"):
        ops.choose_token(*two, np.zeros(2, np.uint32), device=device)
    with pytest.raises(errors.ArgumentError, match="top_logits: x: expected rows of at most 1048576 values"):
        ops.top_logits(np.zeros((1, (1 << 20) + 1), np.float32), 1, device=device)
