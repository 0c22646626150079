"""Sampling against a float64 reference that sorts, and against rules that need none.

A draw agrees with the reference when its random number lies in the token's interval of the reference's
cumulative distribution, give or take the error of probabilities. Examples in which the border of a filter is
within that error of a cumulative probability are left out; borders met exactly have tests of their own.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyturbo import Device
from pyturbo._sampling import Sampler, TopLogits, top_logprobs
from pyturbo.errors import ArgumentError
from reference import sampler as reference

ERROR = 1e-6  # of cumulative probabilities


def as_logits(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def check_draw(logits: np.ndarray, kept: np.ndarray, temperature: float, u: float, token: int) -> None:
    assert token in kept
    reached = np.cumsum(reference.probabilities(logits, kept, temperature))
    rank = int(np.flatnonzero(kept == token)[0])
    assert (reached[rank - 1] if rank else 0) - ERROR <= u <= reached[rank] + ERROR


few_values = st.sampled_from([-np.inf, -3.0, -1.0, -0.0, 0.0, 0.5, 0.5, 2.0, 4.0])
any_values = st.floats(-30, 30, width=32)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    values=st.lists(st.one_of(few_values, any_values), min_size=1, max_size=60),
    temperature=st.sampled_from([0.05, 0.8, 1.0, 1.7, 50.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 59, 1000]),
    top_p=st.sampled_from([1e-9, 0.3, 0.5, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    penalty=st.sampled_from([1.0, 1.3, 0.7]),
    tokens=st.lists(st.integers(0, 59), max_size=9),
    window=st.sampled_from([0, 1, 4, 64]),
    seed=st.integers(0, 2**64 - 1),
)
def test_draws_agree_with_the_reference(
    values, temperature, top_k, top_p, min_p, penalty, tokens, window, seed
):
    logits = np.array(values, np.float32)
    assume(np.isfinite(logits).any())
    tokens = [token % len(logits) for token in tokens]
    changed = reference.adjusted(logits, tokens[-window:], penalty)
    kept, margin = reference.kept(changed, top_k, top_p, min_p)
    assume(margin > ERROR)
    logprobs = reference.log_softmax(logits)
    sampler = Sampler(temperature, top_p, top_k, min_p, penalty, seed, window)
    sampler.accept(tokens)
    for draw in range(1, 6):
        token, logprob = sampler.sample(logits)
        check_draw(changed, kept, temperature, reference.uniform(seed, draw), token)
        assert logprob == pytest.approx(logprobs[token], abs=1e-6)


@pytest.mark.parametrize("spread", [0.5, 3.0, 9.0])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (0.8, 0, 0.95, 0.0),
        (1.0, 0, 1.0, 0.0),
        (1.3, 0, 1.0, 0.05),
        (0.8, 40, 0.9, 0.0),
        (0.7, 20001, 0.99, 1e-4),
    ],
)
def test_draws_over_a_large_vocabulary(spread, temperature, top_k, top_p, min_p):
    rng = np.random.default_rng(3)
    logits = (rng.standard_normal(250_007) * spread).astype(np.float32)
    logits[rng.integers(0, 250_007, 20_000)] = -np.inf
    logits[::7] = np.round(logits[::7])
    kept, _ = reference.kept(logits, top_k, top_p, min_p)
    sampler = Sampler(temperature, top_p, top_k, min_p, seed=11)
    border = set(
        reference.ranked(logits)[len(kept) : len(kept) + 5]
    )  # as likely as the last one kept, but for rounding
    for draw in range(1, 9):
        token, logprob = sampler.sample(logits)
        if token not in border:
            check_draw(logits, kept, temperature, reference.uniform(11, draw), token)
        assert logprob == pytest.approx(reference.log_softmax(logits)[token], abs=1e-6)


def test_temperature_zero_takes_the_first_of_the_largest():
    logits = as_logits(-np.inf, 2, 3, -1, 3)
    assert Sampler().sample(logits) == (2, pytest.approx(reference.log_softmax(logits)[2], abs=1e-6))
    assert Sampler(top_k=1, top_p=0.1, min_p=1).sample(logits)[0] == 2
    penalised = Sampler(repetition_penalty=1.1)
    penalised.accept(2)
    token, logprob = penalised.sample(logits)
    assert (token, logprob) == (4, pytest.approx(reference.log_softmax(logits)[4], abs=1e-6))


def drawn(
    sampler: Sampler, logits: np.ndarray, count: int = 300, allowed: np.ndarray | None = None
) -> set[int]:
    return {sampler.sample(logits, allowed)[0] for _ in range(count)}


def test_filters_meet_their_borders_exactly():
    equal = as_logits(1, 1, 1, 1)
    assert drawn(Sampler(1, top_k=3, seed=0), equal) == {0, 1, 2}
    assert drawn(Sampler(1, top_p=0.5, seed=0), equal) == {0, 1}
    assert drawn(Sampler(1, top_p=0.5 + 1e-9, seed=0), equal) == {0, 1, 2}
    assert drawn(Sampler(1, top_p=1e-300, seed=0), equal) == {0}
    assert drawn(Sampler(1, min_p=1, seed=0), as_logits(1, 2, 2, -0.0, 2)) == {1, 2, 4}


def test_top_p_counts_what_top_k_leaves():
    logits = np.log(as_logits(4, 3, 2, 1))
    assert drawn(Sampler(1, top_p=0.5, seed=0), logits) == {0, 1}  # 4 of 10 are not enough
    assert drawn(Sampler(1, top_p=0.5, top_k=2, seed=0), logits) == {0}  # 4 of 7 are


def test_filters_see_probabilities_without_temperature():
    logits = np.log(as_logits(8, 4, 2, 1))
    assert drawn(Sampler(100, top_p=0.7, seed=0), logits) == {0, 1}
    assert drawn(Sampler(100, min_p=0.2, seed=0), logits) == {0, 1, 2}


def test_forbidden_tokens_are_never_drawn():
    logits = as_logits(-np.inf, 0, -np.inf, 0, -3e38)
    for sampler in (Sampler(1e6, seed=1), Sampler(1e6, top_k=4, seed=1), Sampler(1e6, min_p=1e-300, seed=1)):
        assert drawn(sampler, logits) == {1, 3}


def test_the_smallest_and_largest_temperatures():
    logits = as_logits(0, 1, 1 - 1e-6, 0.5)
    assert drawn(Sampler(5e-324, seed=0), logits) == {1}
    assert drawn(Sampler(1e308, seed=0), logits) == {0, 1, 2, 3}


def test_the_penalty_counts_each_token_of_the_window_once():
    logits = as_logits(1.0, 0.9, -1.0, -np.inf)
    sampler = Sampler(repetition_penalty=2, repetition_window=2)
    sampler.accept([0, 0])
    assert sampler.sample(logits)[0] == 1  # 1 / 2 < 0.9, and 0 once
    sampler.accept(np.array([1, 2]))
    assert sampler.sample(logits)[0] == 0  # 0 has left the window
    always = Sampler(repetition_penalty=2, repetition_window=0)
    always.accept([0] + [3] * 1000)
    assert always.sample(logits)[0] == 1
    other = Sampler(repetition_penalty=0.25)
    other.accept(2)
    assert other.sample(as_logits(-0.3, -0.9, -1.0))[0] == 2


def test_a_penalty_never_leaves_the_finite_numbers():
    for penalty, logits, token in ((1e-300, (3, 3e38), 1), (1e300, (-np.inf, -3e38), 1)):
        sampler = Sampler(repetition_penalty=penalty)
        sampler.accept([1])
        assert sampler.sample(as_logits(*logits))[0] == token


#: Seven draws a seed from 1000 logits that need no rounding, with top_p 0.9 and temperature 0.8.
EXPECTED = {
    0: [515, 475, 521, 47, 554, 409, 587],
    1: [772, 442, 231, 225, 343, 607, 996],
    42: [607, 831, 831, 277, 601, 864, 132],
    18446744073709551615: [396, 462, 409, 521, 139, 277, 508],
}


@pytest.mark.parametrize("seed", EXPECTED)
def test_seeds_give_the_same_tokens_on_every_machine(seed):
    logits = (np.arange(1000) * 7919 % 1009 / 64).astype(np.float32)
    sampler = Sampler(0.8, top_p=0.9, seed=seed)
    assert [sampler.sample(logits)[0] for _ in range(7)] == EXPECTED[seed]


def test_seeds():
    logits = np.zeros(1000, np.float32)
    first, again, other = (Sampler(1, seed=seed) for seed in (5, 5, 6))
    assert first.seed == 5
    tokens = [first.sample(logits)[0] for _ in range(20)]
    assert tokens == [again.sample(logits)[0] for _ in range(20)]
    assert tokens != [other.sample(logits)[0] for _ in range(20)]
    assert Sampler().seed != Sampler().seed
    assert Sampler(seed=2**64 - 1).seed == 2**64 - 1


@pytest.mark.parametrize("one_sampler", [True, False])
def test_draws_follow_the_distribution(one_sampler):
    """Along the draws of one seed, and over the first draws of many seeds."""
    logits = as_logits(1, -0.5, 2, 0, 1.5, -1, 0.25, -np.inf, 1)
    allowed = np.flatnonzero(np.isfinite(logits))
    count = 20_000
    sampler = Sampler(0.7, seed=2024)
    samplers = (sampler if one_sampler else Sampler(0.7, seed=seed) for seed in range(count))
    counts = np.bincount([s.sample(logits)[0] for s in samplers], minlength=len(logits))
    expected = count * reference.probabilities(logits, allowed, 0.7)
    chi_square = ((counts[allowed] - expected) ** 2 / expected).sum()
    assert chi_square < 24.32  # exceeded once in a thousand with 7 degrees of freedom
    assert counts.sum() == counts[allowed].sum()


@pytest.mark.parametrize("vocab", [1, 5, 300, 250_007])
def test_top_logprobs(vocab):
    rng = np.random.default_rng(4)
    logits = (rng.standard_normal(vocab) * 3).astype(np.float32)
    logits[::3] = np.round(logits[::3])
    order, logprobs = reference.ranked(logits), reference.log_softmax(logits)
    for n in (0, 1, 2, 20, 2000):
        tokens = [token for token, _ in top_logprobs(logits, n)]
        assert tokens == order[:n].tolist()
        values = [logprob for _, logprob in top_logprobs(logits, n)]
        np.testing.assert_allclose(values, logprobs[order[:n]], atol=1e-6)
    assert top_logprobs(as_logits(-np.inf, 0), 2) == [(1, 0.0)]


def test_logits_may_be_a_buffer():
    buffer = Device("cpu").buffer(np.arange(8, dtype=np.float32))
    assert Sampler().sample(buffer)[0] == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -0.1}, "Sampler: temperature: expected a finite number from 0 on, got -0.1"),
        ({"temperature": np.nan}, "Sampler: temperature: expected a finite number from 0 on, got nan"),
        ({"temperature": np.inf}, "Sampler: temperature: expected a finite number from 0 on, got inf"),
        ({"temperature": "1"}, "Sampler: temperature: expected a number, got '1'"),
        ({"top_p": 0}, "Sampler: top_p: expected a number above 0 and at most 1, got 0"),
        ({"top_p": 1.5}, "Sampler: top_p: expected a number above 0 and at most 1, got 1.5"),
        ({"min_p": -1}, "Sampler: min_p: expected a number from 0 to 1, got -1"),
        ({"min_p": np.nan}, "Sampler: min_p: expected a number from 0 to 1, got nan"),
        ({"top_k": -1}, "Sampler: top_k: expected an integer from 0 on, got -1"),
        ({"top_k": 1.5}, "Sampler: top_k: expected an integer from 0 on, got 1.5"),
        ({"repetition_penalty": 0}, "Sampler: repetition_penalty: expected a finite number above 0, got 0"),
        ({"repetition_window": None}, "Sampler: repetition_window: expected an integer from 0 on, got None"),
        ({"seed": -1}, "Sampler: seed: expected an integer from 0 on, got -1"),
        ({"seed": 2**64}, "Sampler: seed: expected an integer below 2^64, got 18446744073709551616"),
    ],
)
def test_refuses_parameters(arguments, message):
    with pytest.raises(ArgumentError) as error:
        Sampler(**arguments)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros(3), "expected contiguous, aligned float32 [vocab], got float64 [3]"),
        (np.zeros((2, 3), np.float32), "expected contiguous, aligned float32 [vocab], got float32 [2, 3]"),
        (np.zeros(6, np.float32)[::2], "expected contiguous, aligned float32 [vocab], got float32 [3]"),
        (np.zeros(0, np.float32), "expected contiguous, aligned float32 [vocab], got float32 [0]"),
        ([1.0], "expected contiguous, aligned float32 [vocab], got list"),
        (None, "expected contiguous, aligned float32 [vocab], got NoneType"),
        (np.array([1] * 17 + [np.nan] * 2, np.float32), "expected finite values or -inf, got NaN at 17"),
        (np.array([1] * 5000 + [np.inf], np.float32), "expected finite values or -inf, got +inf at 5000"),
        (np.full(40, -np.inf, np.float32), "expected at least one finite value, got -inf only"),
    ],
)
def test_refuses_logits(logits, message):
    for op, call in (("sample", Sampler(1).sample), ("top_logprobs", lambda x: top_logprobs(x, 0))):
        with pytest.raises(ArgumentError) as error:
            call(logits)
        assert str(error.value) == f"{op}: logits: {message}"


def test_a_refused_sample_uses_up_no_random_number():
    logits = np.zeros(1000, np.float32)
    first, second = Sampler(1, seed=3), Sampler(1, seed=3)
    with pytest.raises(ArgumentError):
        first.sample(np.full(3, np.nan, np.float32))
    assert first.sample(logits) == second.sample(logits)


@pytest.mark.parametrize("tokens", [-1, [1, -2], [1.5], "a", [[1]], 2**31, None, [True], object()])
def test_refuses_tokens(tokens):
    with pytest.raises(ArgumentError, match=r"accept: tokens: expected ids from 0 to 2\^31 - 1, got"):
        Sampler().accept(tokens)


def test_refuses_accepted_tokens_outside_of_the_vocabulary():
    sampler = Sampler(repetition_window=1)
    sampler.accept([7, 3])
    assert sampler.sample(np.zeros(4, np.float32))[0] == 0
    with pytest.raises(ArgumentError, match="sample: accepted tokens: expected ids below 3, got 3"):
        sampler.sample(np.zeros(3, np.float32))
    sampler.accept(())
    with pytest.raises(ArgumentError, match="top_logprobs: n: expected an integer from 0 on, got -1"):
        top_logprobs(np.zeros(3, np.float32), -1)


def test_logits_and_samplers_may_be_shared_by_threads():
    """Whatever others write into the logits, a call gives tokens of the vocabulary or refuses the values."""
    logits = np.zeros(20_011, np.float32)
    samplers = [
        Sampler(),
        Sampler(0.7, top_p=0.9, top_k=40, min_p=0.01, repetition_penalty=1.2, seed=3),
        Sampler(1.0, top_p=0.5, seed=4),
    ]
    end = time.monotonic() + 0.8
    wrong: list[object] = []
    drawn = [0]

    def goes_on() -> bool:
        """Until the end, and on a busy machine until a token was drawn."""
        return time.monotonic() < (end if drawn[0] else end + 60)

    def write() -> None:
        rng = np.random.default_rng(5)
        values = [rng.integers(0, 2**32, logits.size, np.uint32).view(np.float32) for _ in range(4)]
        values += [rng.standard_normal(logits.size).astype(np.float32) * scale for scale in (0.1, 30, 1e37)]
        values += [np.full(logits.size, value, np.float32) for value in (-np.inf, np.inf, np.nan, 1)]
        while goes_on():
            for written in values:
                logits[:] = written
                logits[rng.integers(logits.size)] = 1

    def tokens_of(sampler: Sampler) -> list[int]:
        token = sampler.sample(logits)[0]
        sampler.accept(token)
        return [token, *(token for token, _ in top_logprobs(logits, 50))]

    def read(sampler: Sampler) -> None:
        while goes_on():
            try:
                tokens = tokens_of(sampler)
                drawn[0] += 1
                wrong.extend(token for token in tokens if not 0 <= token < logits.size)
            except ArgumentError as error:
                if "logits: expected" not in str(error):
                    wrong.append(error)

    threads = [threading.Thread(target=write)]
    threads += [threading.Thread(target=read, args=(sampler,)) for sampler in samplers for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert drawn[0] > 0


def top_of(logits: np.ndarray, count: int) -> TopLogits:
    """The first `count` logits by rank, forbidden ones among them, with the total in float32."""
    tokens = np.lexsort((np.arange(len(logits)), -logits))[:count].astype(np.int32)
    total = np.exp(logits.astype(np.float64) - logits.max()).sum()
    return TopLogits(logits[tokens], tokens, np.float32(total), len(logits))


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    values=st.lists(st.one_of(few_values, any_values), min_size=1, max_size=60),
    count=st.integers(1, 64),
    temperature=st.sampled_from([0.0, 0.05, 0.8, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 7, 20, 59, 60]),
    top_p=st.sampled_from([1e-9, 0.3, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    penalty=st.sampled_from([1.0, 1.0, 1.1, 3.0, 0.7]),
    tokens=st.lists(st.integers(0, 59), max_size=9),
    window=st.sampled_from([0, 1, 4, 64]),
    seed=st.integers(0, 2**64 - 1),
)
def test_the_largest_logits_give_the_token_that_all_logits_give(
    values, count, temperature, top_k, top_p, min_p, penalty, tokens, window, seed
):
    logits = np.array(values, np.float32)
    assume(np.isfinite(logits).any())
    top = top_of(logits, min(count, len(logits)))
    whole, part = (Sampler(temperature, top_p, top_k, min_p, penalty, seed, window) for _ in range(2))
    for sampler in (whole, part):
        sampler.accept([token % len(logits) for token in tokens])
    for _ in range(4):
        drawn = part.sample_top(top)
        if drawn is None:
            drawn = part.sample(logits)  # the random number is still the same
        elif temperature > 0:
            assert 0 < top_k <= len(top)
        token, logprob = whole.sample(logits)
        assert drawn == (token, pytest.approx(logprob, abs=1e-6))
        for sampler in (whole, part):
            sampler.accept(token)


@pytest.mark.parametrize(
    ("options", "enough"),
    [
        ({}, True),
        ({"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.05}, True),
        ({"temperature": 0.8, "top_k": 64}, True),
        ({"temperature": 0.8, "top_k": 65}, False),
        ({"temperature": 0.8, "top_p": 0.9}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"repetition_penalty": 1.1, "temperature": 1, "top_k": 40}, True),
        ({"repetition_penalty": 0.9}, False),
    ],
)
def test_when_the_largest_logits_are_enough(options, enough):
    logits = np.random.default_rng(8).standard_normal(5003).astype(np.float32)
    top = top_of(logits, 64)
    whole, part = (Sampler(**options, seed=9) for _ in range(2))
    for sampler in (whole, part):
        sampler.accept(np.argsort(-logits)[3:9])
    for _ in range(20):
        drawn, expected = part.sample_top(top), whole.sample(logits)
        assert (drawn is not None) == enough
        assert drawn is None or drawn == (expected[0], pytest.approx(expected[1], abs=1e-6))


@pytest.mark.parametrize(
    ("options", "simple"),
    [
        ({}, (1, 1.0, 0.0, 1.0)),
        ({"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.05}, (20, 0.9, 0.05, 0.8)),
        ({"temperature": 0.8}, None),
        ({"temperature": 0.8, "top_k": 9, "typical_p": 0.5}, None),
        ({"temperature": 0.8, "top_k": 9, "xtc_probability": 0.5}, None),
        ({"temperature": 0.8, "top_k": 9, "top_n_sigma": 1.0}, None),
        ({"repetition_penalty": 1.1}, None),
        ({"presence_penalty": 0.1}, None),
        ({"frequency_penalty": 0.1}, None),
        ({"dry_multiplier": 0.1}, None),
        ({"logit_bias": {3: 1.0}}, None),
    ],
)
def test_draws_that_are_known_before(options, simple):
    sampler, used = Sampler(**options, seed=9), Sampler(**options, seed=9)
    logits = np.random.default_rng(8).standard_normal(100).astype(np.float32)
    for number in range(1, 4):
        draw = sampler.upcoming(number)
        assert (draw is None) == (simple is None)
        if draw is not None:
            assert draw[:4] == simple
            assert 0 < draw[4] <= 1
        assert used.upcoming(1) == draw  # and so draws count, and looking at them does not
        used.sample(logits)
    with pytest.raises(ArgumentError, match="upcoming: number: expected an integer from 1 on, got 0"):
        sampler.upcoming(0)


def test_a_penalty_that_reaches_below_the_largest_logits_needs_all():
    logits = np.linspace(9, 1, 100, dtype=np.float32)
    for count, enough in ((64, False), (63, True)):
        sampler = Sampler(repetition_penalty=3)
        sampler.accept(range(count))
        drawn = sampler.sample_top(top_of(logits, 64))
        assert (drawn is not None) == enough
        assert drawn is None or drawn[0] == sampler.sample(logits)[0] == 63


def test_top_logprobs_of_the_largest_logits():
    logits = np.round(np.random.default_rng(4).standard_normal(300) * 3).astype(np.float32)
    logits[7] = -np.inf
    top = top_of(logits, 64)
    for n in (0, 1, 20, 64):
        found, expected = top.logprobs(n), top_logprobs(logits, n)
        assert [token for token, _ in found] == [token for token, _ in expected]
        np.testing.assert_allclose([p for _, p in found], [p for _, p in expected], atol=1e-6)
    assert top.logprobs(65) is None
    assert top_of(as_logits(-np.inf, 0), 2).logprobs(5) == [(1, 0.0)]
    assert (len(top), repr(top)) == (64, "TopLogits(64 of 300)")


@pytest.mark.parametrize(
    ("values", "tokens", "total"),
    [
        ([np.nan, 1], [0, 1], 2),
        ([np.inf, 1], [0, 1], 2),
        ([-np.inf, -np.inf], [0, 1], 2),
        ([1, 2], [0, 1], 2),
        ([2, 2], [1, 0], 2),
        ([2, 1], [1, 1 << 20], 2),
        ([2, 1], [1, -1], 2),
        ([2, 1], [0, 1], np.nan),
        ([2, 1], [0, 1], 0),
    ],
)
def test_what_is_no_ranking_of_logits_needs_all(values, tokens, total):
    top = TopLogits(np.array(values, np.float32), np.array(tokens, np.int32), total, 1 << 20)
    assert Sampler().sample_top(top) is None
    assert top.logprobs(1) is None


def test_refuses_what_top_logits_do_not_have():
    values, tokens = np.zeros(2, np.float32), np.zeros(2, np.int32)
    with pytest.raises(ArgumentError, match="TopLogits: logits: expected contiguous, aligned float32"):
        TopLogits(tokens, tokens, 1, 2)
    with pytest.raises(ArgumentError, match=r"TopLogits: tokens: expected int32 \[2\], got"):
        TopLogits(values, values, 1, 2)
    with pytest.raises(ArgumentError, match=r"TopLogits: tokens: expected int32 \[2\], got"):
        TopLogits(values, tokens[:1], 1, 2)
    with pytest.raises(ArgumentError, match="TopLogits: vocab: expected an integer from 1 on, got 0"):
        TopLogits(values, tokens, 1, 0)
    sampler = Sampler()
    sampler.accept(3)
    with pytest.raises(ArgumentError, match="sample: accepted tokens: expected ids below 2, got 3"):
        sampler.sample_top(top_of(values, 2))
