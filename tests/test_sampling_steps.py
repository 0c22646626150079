"""Masks, biases, penalties and the filters beside top_k, top_p and min_p, against the float64 reference.

Examples in which a border is within the error of probabilities are left out, as in test_sampling.py; borders
that are met exactly have tests of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyturbo._sampling import Sampler
from pyturbo.errors import ArgumentError
from reference import sampler as reference
from test_sampling import ERROR, any_values, as_logits, check_draw, drawn, few_values, top_of


def words(allowed: np.ndarray) -> np.ndarray:
    """The mask of a boolean array, with bits of tokens that do not exist."""
    bits = np.ones(-(-len(allowed) // 32) * 32, np.uint8)
    bits[: len(allowed)] = allowed
    return np.packbits(bits, bitorder="little").view(np.uint32)


LOGITS = st.lists(st.one_of(few_values, any_values), min_size=1, max_size=70)
#: Options of one example. Half of the values are off, so that steps are also seen by themselves.
OPTIONS = {
    "temperature": st.sampled_from([0.05, 0.8, 1.0, 1.7, 50.0]),
    "top_k": st.sampled_from([0, 0, 1, 7, 20, 69]),
    "top_p": st.sampled_from([1.0, 1.0, 0.3, 0.95]),
    "min_p": st.sampled_from([0.0, 0.0, 0.05, 0.5]),
    "typical_p": st.sampled_from([1.0, 1.0, 1e-9, 0.3, 0.9]),
    "top_n_sigma": st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0]),
    "xtc_probability": st.sampled_from([0.0, 0.5, 1.0]),
    "xtc_threshold": st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    "repetition_penalty": st.sampled_from([1.0, 1.0, 1.3, 0.7]),
    "presence_penalty": st.sampled_from([0.0, 0.0, 1.5, -2.0]),
    "frequency_penalty": st.sampled_from([0.0, 0.0, 0.25, -0.5]),
    "repetition_window": st.sampled_from([0, 1, 4, 64]),
    "dry_multiplier": st.sampled_from([0.0, 0.8, 5.0]),
    "dry_base": st.sampled_from([1.0, 1.75]),
    "dry_allowed_length": st.integers(1, 3),
    "dry_window": st.sampled_from([0, 5, 64]),
    "seed": st.integers(0, 2**64 - 1),
}
BREAKERS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=3)
#: Few different tokens repeat themselves.
TOKENS = st.lists(st.integers(0, 4), max_size=30)
BIASES = st.dictionaries(st.integers(0, 69), st.sampled_from([-np.inf, -3.0, -0.5, 0.0, 2.5]), max_size=4)
ALLOWED = st.none() | st.lists(st.booleans(), min_size=70, max_size=70) | st.just([True] * 70)


def within(tokens: Any, vocab: int) -> Any:
    """Tokens, or entries of tokens, that a vocabulary has."""
    if isinstance(tokens, dict):
        return {token: value for token, value in tokens.items() if token < vocab}
    return [token for token in tokens if token < vocab]


def changed(
    logits: np.ndarray, tokens: list[int], allowed: Any, bias: Any, breakers: Any, o: Any
) -> np.ndarray:
    """The logits that filters see."""
    dry = {}
    if o["dry_multiplier"]:
        penalties = (o["dry_multiplier"], o["dry_base"], o["dry_allowed_length"])
        dry = reference.dry_penalties(tokens[-o["dry_window"] :], breakers, *penalties)
    penalties = (o["repetition_penalty"], o["presence_penalty"], o["frequency_penalty"])
    last = tokens[-o["repetition_window"] :]
    return reference.adjusted(logits, last, *penalties, bias, allowed, dry)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(LOGITS, ALLOWED, TOKENS, BIASES, BREAKERS, st.fixed_dictionaries(OPTIONS))
def test_draws_agree_with_the_reference(values, allowed, tokens, bias, breakers, options):
    logits = np.array(values, np.float32)
    vocab = len(logits)
    allowed = None if allowed is None else np.array(allowed[:vocab])
    tokens, bias = within(tokens, vocab), within(bias, vocab)
    assume(np.isfinite(logits).any())
    after = changed(logits, tokens, allowed, bias, breakers, options)
    assume(np.isfinite(after).any())
    sampler = Sampler(**options, logit_bias=bias, dry_breakers=breakers)
    sampler.accept(tokens)
    names = ("top_k", "top_p", "min_p", "typical_p", "top_n_sigma")
    filters = {name: options[name] for name in names}
    number = 0
    for _ in range(4):
        dropped = False
        if options["xtc_probability"]:
            number += 1
            dropped = reference.uniform(options["seed"], number) <= options["xtc_probability"]
        number += 1
        kept, margin = reference.kept(
            after, **filters, xtc_threshold=options["xtc_threshold"] if dropped else None
        )
        assume(margin > ERROR)
        token, logprob = sampler.sample(logits, None if allowed is None else words(allowed))
        u = reference.uniform(options["seed"], number)
        check_draw(after, kept, options["temperature"], u, token)
        assert logprob == pytest.approx(reference.log_softmax(logits)[token], abs=1e-6)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    LOGITS,
    ALLOWED,
    TOKENS,
    BIASES,
    BREAKERS,
    st.fixed_dictionaries(OPTIONS),
    st.integers(1, 64),
    st.booleans(),
)
def test_the_largest_logits_give_the_token_that_all_logits_give(
    values, allowed, tokens, bias, breakers, options, count, greedy
):
    logits = np.array(values, np.float32)
    assume(np.isfinite(logits).any())
    vocab = len(logits)
    mask = None if allowed is None else words(np.array(allowed[:vocab]))
    top = top_of(logits, min(count, vocab))
    options = options | ({"temperature": 0.0} if greedy else {})
    both = [Sampler(**options, logit_bias=within(bias, vocab), dry_breakers=breakers) for _ in range(2)]
    for sampler in both:
        sampler.accept(within(tokens, vocab))
    whole, part = both
    for _ in range(4):
        drawn = part.sample_top(top, mask)
        try:
            token, logprob = whole.sample(logits, mask)
        except ArgumentError:  # nothing is allowed
            assert drawn is None
            return
        if drawn is None:
            drawn = part.sample(logits, mask)  # the random numbers are still the same
        assert drawn == (token, pytest.approx(logprob, abs=1e-6))
        for sampler in both:
            sampler.accept(token)


@pytest.mark.parametrize(
    ("options", "mask", "enough"),
    [
        ({}, "half", True),
        ({"temperature": 1, "top_k": 20}, "half", True),
        ({"temperature": 1, "top_k": 40}, "half", False),
        ({"temperature": 1, "top_k": 40}, "first three", True),
        ({"temperature": 1}, "first three", True),
        ({"temperature": 1}, "half", False),
        ({}, "last three", False),
        ({"logit_bias": {7: -1.0}}, None, True),
        ({"logit_bias": {7: 0.5}}, None, False),
        ({"logit_bias": {7: 0.5}}, "first three", True),
        ({"presence_penalty": 0.5, "frequency_penalty": 0.1}, None, True),
        ({"presence_penalty": -0.5}, None, False),
        ({"frequency_penalty": -0.5}, None, False),
        ({"dry_multiplier": 0.5}, None, True),
        ({"temperature": 1, "top_k": 20, "typical_p": 0.9, "xtc_probability": 0.5}, None, True),
        ({"temperature": 1, "top_k": 20, "top_n_sigma": 1.0}, None, False),
        ({"top_n_sigma": 1.0}, None, True),
    ],
)
def test_when_the_largest_logits_are_enough(options, mask, enough):
    logits = np.random.default_rng(8).standard_normal(5003).astype(np.float32)
    order = np.argsort(-logits)
    tokens = {None: None, "half": order[::2], "first three": order[:3], "last three": order[-3:]}[mask]
    allowed = np.zeros(5003, bool)
    allowed[order if tokens is None else tokens] = True
    bits = None if tokens is None else words(allowed)
    whole, part = (Sampler(**options, seed=9) for _ in range(2))
    for sampler in (whole, part):
        sampler.accept([int(order[3]), 9, 8, int(order[3]), 9, 8])
    for _ in range(20):
        found, expected = part.sample_top(top_of(logits, 64), bits), whole.sample(logits, bits)
        assert (found is not None) == enough
        assert found is None or found == (expected[0], pytest.approx(expected[1], abs=1e-6))


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 64, 100, 4099])
@pytest.mark.parametrize("temperature", [0.0, 1e6])
def test_a_mask_allows_exactly_its_tokens(vocab, temperature):
    rng = np.random.default_rng(vocab)
    logits = rng.standard_normal(vocab).astype(np.float32)
    for count in {1, (vocab + 1) // 2, vocab}:
        allowed = np.zeros(vocab, bool)
        allowed[rng.permutation(vocab)[:count]] = True
        found = drawn(Sampler(temperature, seed=3), logits, allowed=words(allowed), count=40)
        assert found <= set(np.flatnonzero(allowed))
        if temperature == 0:
            assert found == {int(np.argmax(np.where(allowed, logits, -np.inf)))}


def test_a_mask_of_all_tokens_changes_no_probability():
    logits = as_logits(1, 2, 3, -np.inf, 0.5)
    sampler = Sampler(0.7, seed=1)
    assert drawn(sampler, logits, allowed=words(np.ones(5, bool))) == {0, 1, 2, 4}


def test_masks_that_are_refused():
    logits = np.zeros(40, np.float32)
    for mask, message in (
        (np.zeros(2, np.uint32), "sample: allowed: expected at least one token that may be drawn, got none"),
        (np.array([0, 0xFFFFFF00], np.uint32), "expected at least one token that may be drawn, got none"),
        (np.ones(1, np.uint32), "sample: allowed: expected 2 words for 40 tokens, got 1"),
        (np.ones(3, np.uint32), "sample: allowed: expected 2 words for 40 tokens, got 3"),
        (np.ones(40, bool), r"sample: allowed: expected contiguous, aligned uint32 words, got bool \[40\]"),
        (np.ones(4, np.uint32)[::2], r"expected contiguous, aligned uint32 words, got uint32 \[2\]"),
        (np.zeros(0, np.uint32), r"expected contiguous, aligned uint32 words, got uint32 \[0\]"),
        ([1, 1], "expected contiguous, aligned uint32 words, got list"),
    ):
        with pytest.raises(ArgumentError, match=message):
            Sampler().sample(logits, mask)
        if "that may be drawn" not in message:
            with pytest.raises(ArgumentError, match="allowed: expected"):
                Sampler().sample_top(top_of(logits, 10), mask)
    forbidden = np.full(40, -np.inf, np.float32)
    forbidden[3] = 0
    with pytest.raises(ArgumentError, match="expected at least one token that may be drawn, got none"):
        Sampler().sample(forbidden, np.array([0b0110, 0], np.uint32))


def test_bias():
    logits = as_logits(1, 2, 3, -np.inf)
    assert Sampler(logit_bias={1: 1.5}).sample(logits)[0] == 1
    assert Sampler(logit_bias={1: 1.0}).sample(logits)[0] == 1  # equal logits by token
    assert Sampler(logit_bias={2: -np.inf, 3: 1e9}).sample(logits)[0] == 1
    assert drawn(Sampler(1, seed=1, logit_bias={0: -np.inf, 2: -1.0}), logits) == {1, 2}
    token, logprob = Sampler(logit_bias={0: 1e300}).sample(logits)
    assert (token, logprob) == (0, pytest.approx(reference.log_softmax(logits)[0], abs=1e-6))


def test_presence_and_frequency():
    logits = as_logits(3.0, 2.75, 2.5)
    for options, expected in (
        ({"presence_penalty": 0.3}, 1),  # 2.7, 2.75, 2.5
        ({"frequency_penalty": 0.1}, 0),  # 2.8, 2.75, 2.5
        ({"frequency_penalty": 0.15}, 1),  # 2.7, 2.75, 2.5
        ({"frequency_penalty": 0.15, "repetition_window": 1}, 0),  # 2.85, 2.75, 2.5
        ({"repetition_penalty": 0.5, "presence_penalty": 3.0}, 0),  # 6 - 3: after the repetition penalty
        ({"repetition_penalty": 0.5, "presence_penalty": 3.3}, 1),
    ):
        sampler = Sampler(**options)
        sampler.accept([0, 0])
        assert sampler.sample(logits)[0] == expected, options


def test_dry_penalises_what_continues_a_repetition():
    def likeliest(tokens, vocab=10, **options):
        """The tokens in order of their logits, 1 apart, each after those before were taken away."""
        sampler = Sampler(dry_multiplier=100.0, dry_window=0, **options)
        sampler.accept(tokens)
        logits = np.arange(vocab, 0, -1, dtype=np.float32)
        return sampler.sample(logits)[0]

    again = [0, 1, 2, 5, 0, 1]  # 2 would continue 0 1
    assert likeliest([2, *again][1:]) == 0
    for tokens, breakers, expected in (
        ([3, 4, 0, 5, 3, 4], (), 1),  # 0 would continue 3 4
        ([3, 4, 0, 5, 7, 4], (), 0),  # only one token is repeated
        ([3, 4, 0, 5, 3, 4], ([4],), 0),  # the repetition ends at the breaker
        ([3, 4, 0, 5, 3, 4], ([3, 4],), 0),
        ([3, 4, 0, 5, 3, 4], ([3],), 0),  # one token is left
        ([3, 4, 0, 5, 3, 4], ([0],), 0),  # a breaker is not penalised
        ([3, 4, 0, 5, 3, 4], ([5],), 1),
        ([3, 4, 0, 5, 3, 4], ([5, 4],), 1),
        ([3, 4, 0, 3, 4, 1, 3, 4], (), 2),  # both 0 and 1
        ([6] * 5, (), 0),
    ):
        assert likeliest(tokens, dry_breakers=breakers) == expected, (tokens, breakers)
    assert likeliest([3, 4, 0, 5, 3, 4], dry_allowed_length=3) == 0


def test_dry_grows_with_the_length():
    logits = as_logits(0, 0, 10, 0)
    tokens = [1, 3, 1, 2, 0, 1, 3, 1]  # 2 would continue a repetition of three tokens
    for multiplier, expected in ((4.9, 2), (5.1, 0)):
        sampler = Sampler(dry_multiplier=multiplier, dry_base=2.0, dry_allowed_length=2, dry_window=0)
        sampler.accept(tokens)
        assert sampler.sample(logits)[0] == expected
    endless = Sampler(dry_multiplier=1e300, dry_base=1e300, dry_window=0)
    endless.accept([2] * 1000)
    assert endless.sample(as_logits(-3e38, -3e38, -3e38))[0] == 0


def test_filters_meet_their_borders_exactly():
    likely = np.log(as_logits(4, 3, 2, 1))
    for options, expected in (
        ({"typical_p": 1e-300}, {1}),  # the entropy is 1.28, the information of 3 in 10 is 1.20
        ({"typical_p": 0.3}, {1}),
        ({"typical_p": 0.31}, {1, 2}),
        ({"typical_p": 0.51}, {0, 1, 2}),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.45}, {0, 1, 2, 3}),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.35}, {0, 1, 2, 3}),  # only one is that likely
        ({"xtc_probability": 1.0, "xtc_threshold": 0.25}, {1, 2, 3}),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.15}, {2, 3}),
        ({"xtc_probability": 1.0, "xtc_threshold": 0.0}, {3}),
        ({"xtc_probability": 0.0, "xtc_threshold": 0.0}, {0, 1, 2, 3}),
        ({"top_n_sigma": 1e-9}, {0}),
    ):
        assert drawn(Sampler(1, seed=0, **options), likely) == expected, options
    equal = as_logits(1, 1, 1, 1)
    assert drawn(Sampler(1, typical_p=0.5, seed=0), equal) == {0, 1}
    assert drawn(Sampler(1, xtc_probability=1, xtc_threshold=0.25, seed=0), equal) == {3}
    assert drawn(Sampler(1, top_n_sigma=1.0, seed=0), equal) == {0, 1, 2, 3}
    # The mean is 2, the standard deviation sqrt(2), without the forbidden token.
    steps = as_logits(4, 3, 2, 1, 0, -np.inf)
    assert drawn(Sampler(1, top_n_sigma=2**-0.5 + 1e-9, seed=0), steps) == {0, 1}
    assert drawn(Sampler(1, top_n_sigma=2**-0.5 - 1e-9, seed=0), steps) == {0}


def test_xtc_happens_with_its_probability():
    logits = np.log(as_logits(5, 4, 1))
    sampler = Sampler(1, xtc_probability=0.25, xtc_threshold=0.05, seed=7)
    tokens = [sampler.sample(logits)[0] for _ in range(20_000)]
    # With it only the last token is left, which else has a tenth.
    assert tokens.count(2) / 20_000 == pytest.approx(0.25 + 0.75 * 0.1, abs=0.012)


def test_a_cold_draw_after_the_likeliest_are_dropped():
    """The weights of what is left are those of its own largest logit."""
    logits = as_logits(90, 89, 0, -1)
    assert drawn(Sampler(1e-3, xtc_probability=1, xtc_threshold=0.1, seed=0), logits) == {1}
    assert drawn(Sampler(1e-3, seed=0), as_logits(90, 0, -1), allowed=np.array([0b110], np.uint32)) == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"presence_penalty": np.inf}, "presence_penalty: expected a finite number, got inf"),
        ({"frequency_penalty": np.nan}, "frequency_penalty: expected a finite number, got nan"),
        ({"typical_p": 0}, "typical_p: expected a number above 0 and at most 1, got 0"),
        ({"top_n_sigma": -1}, "top_n_sigma: expected a finite number from 0 on, got -1"),
        ({"xtc_probability": 2}, "xtc_probability: expected a number from 0 to 1, got 2"),
        ({"xtc_threshold": 0.6}, "xtc_threshold: expected a number from 0 to 0.5, got 0.6"),
        ({"dry_multiplier": -1}, "dry_multiplier: expected a finite number from 0 on, got -1"),
        ({"dry_base": 0.5}, "dry_base: expected a finite number from 1 on, got 0.5"),
        ({"dry_allowed_length": 0}, "dry_allowed_length: expected an integer from 1 on, got 0"),
        ({"dry_window": -1}, "dry_window: expected an integer from 0 on, got -1"),
        ({"dry_breakers": "abc"}, "dry_breakers: expected sequences of tokens, got 'abc'"),
        ({"dry_breakers": [[]]}, "dry_breakers: expected sequences of at least one token, got 0"),
        ({"dry_breakers": [[-1]]}, "dry_breakers: expected ids from 0 to 2^31 - 1, got [-1]"),
        ({"logit_bias": [1]}, "logit_bias: expected a mapping of tokens to numbers, got [1]"),
        ({"logit_bias": {1: np.inf}}, "logit_bias: expected finite numbers or -inf, got inf"),
        ({"logit_bias": {1: np.nan}}, "logit_bias: expected finite numbers or -inf, got nan"),
        ({"logit_bias": {1: "x"}}, "logit_bias: expected a number, got 'x'"),
        ({"logit_bias": {"a": 1}}, "logit_bias: token: expected an integer from 0 on, got 'a'"),
        ({"logit_bias": {-1: 1}}, "logit_bias: token: expected an integer from 0 on, got -1"),
    ],
)
def test_refuses_parameters(arguments, message):
    with pytest.raises(ArgumentError) as error:
        Sampler(**arguments)
    assert str(error.value) == f"Sampler: {message}"


def test_refuses_tokens_outside_of_the_vocabulary():
    logits = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match="sample: logit_bias: expected ids below 4, got 4"):
        Sampler(logit_bias={4: 1}).sample(logits)
    sampler = Sampler(dry_multiplier=1, dry_window=0, repetition_window=1)
    sampler.accept([9, 1])
    with pytest.raises(ArgumentError, match="sample: accepted tokens: expected ids below 4, got 9"):
        sampler.sample(logits)
    sampler = Sampler(logit_bias={5: 1}, presence_penalty=1)
    sampler.accept([6])
    assert sampler.sample(np.zeros(7, np.float32))[0] == 5  # then a smaller vocabulary
    with pytest.raises(ArgumentError, match="expected ids below 4"):
        sampler.sample(logits)


#: Five draws a seed from 1000 logits that need no rounding.
EXPECTED = {
    0: [86, 707, 298, 153, 951],
    1: [541, 707, 608, 21, 430],
    42: [864, 753, 930, 21, 686],
    18446744073709551615: [205, 232, 798, 918, 634],
}


@pytest.mark.parametrize("seed", EXPECTED)
def test_seeds_give_the_same_tokens_on_every_machine(seed):
    logits = (np.arange(1000) * 7919 % 1009 / 64).astype(np.float32)
    sampler = every_step(seed)
    assert [draw_and_accept(sampler, logits) for _ in range(5)] == EXPECTED[seed]


def every_step(seed: int) -> Sampler:
    """A sampler in which every step does something."""
    options = {"top_k": 900, "top_p": 0.97, "min_p": 1e-6, "typical_p": 0.99, "top_n_sigma": 3.0}
    penalties = {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    sampler = Sampler(
        1.3,
        seed=seed,
        **options,
        **penalties,
        xtc_probability=0.5,
        xtc_threshold=0.001,
        dry_multiplier=0.8,
        dry_window=0,
        logit_bias={7: 1.25, 990: -2.5},
    )
    sampler.accept([3, 4, 515, 9, 3, 4])
    return sampler


def draw_and_accept(sampler: Sampler, logits: np.ndarray) -> int:
    token = sampler.sample(logits, np.full(32, 0xFFFFFF7F, np.uint32))[0]
    sampler.accept(token)
    return token
