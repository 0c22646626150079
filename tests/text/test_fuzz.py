"""Random templates, settings and vocabularies: what is wrong with them is an error of the package."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyturbo.checkpoint.sampling import directory_sampling
from pyturbo.checkpoint.tokenizer import TokenizerSource, huggingface_source
from pyturbo.errors import TurboError
from pyturbo.text import Tokenizer, chat, template_budget
from pyturbo.text.chat_template import ChatTemplate
from pyturbo.text.special_texts import SpecialTexts
from text.vocabularies import byte_level, huggingface

MESSAGES = [{"role": "user", "content": "a<|im_end|>"}, {"role": "assistant", "content": "b"}]
ATOMS = st.sampled_from(
    """
    1 -1 99999 1000000000 2.5 none true 'a' '%5d' '{:>9}' '' messages messages[0].content ns ns.x s m loop
    range(9) range(99999) nobody [1,s] (1,s) {'a':s} (s|safe) f('a')
    """.split()  # noqa: SIM905
)
NAMES = "center join replace split format indent tojson list map batch sum int round upper items".split()  # noqa: SIM905
OPERATORS = "+ - * / // % ** ~ == < in and".split()  # noqa: SIM905
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("({} | {})".format, inner, st.sampled_from(NAMES)),
        st.builds("({} | {}({}))".format, inner, st.sampled_from(NAMES), inner),
        st.builds("{}.{}({})".format, inner, st.sampled_from(NAMES), inner),
        st.builds("{}[{}:{}]".format, inner, inner, inner),
        st.builds("({} if {})".format, inner, inner),
    ),
    max_leaves=6,
)
STATEMENTS = st.recursive(
    st.one_of(
        st.builds("{{{{ {} }}}}".format, EXPRESSIONS),
        st.builds("{{% set ns.x = {} %}}".format, EXPRESSIONS),
        st.sampled_from(
            ["{% break %}", "{% include 'x' %}", "{%", "}}", "<|im_end|>", "\ud800", "{% raw %}"]
        ),
    ),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{{% for m in {} %}}{}{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds("{{% if {} %}}{}{{% endif %}}".format, EXPRESSIONS, inner),
        st.builds("{{% macro f(s) %}}{}{{% endmacro %}}{{{{ f(1) }}}}".format, inner),
        st.builds("{{% filter upper %}}{}{{% endfilter %}}".format, inner),
        st.builds("{{% autoescape true %}}{}{{% endautoescape %}}".format, inner),
    ),
    max_leaves=5,
)
TEXTS = st.text(
    st.sampled_from(["a", "b", " ", "<", "s", ">", "\u2581", "\u0120", "\ud800", "\x00", "é"]), max_size=6
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2**40), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=4,
)
SETTINGS = st.dictionaries(
    st.sampled_from(["bos_token", "eos_token", "x_token", "add_bos_token", "add_eos_token", "chat_template"]),
    JSON,
)
GENERATION = st.dictionaries(
    st.sampled_from(
        [
            "eos_token_id",
            "bos_token_id",
            "do_sample",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "repetition_penalty",
        ]
    ),
    JSON,
)


def use(source: TokenizerSource) -> None:
    tokenizer = Tokenizer(source)
    for text in ("ab <s>é\x00", ""):
        tokenizer.decode(tokenizer.encode(text))
    tokenizer.encode(tokenizer.chat(MESSAGES), special=False)


@settings(max_examples=60)
@given(template=STATEMENTS)
def test_templates(template: str) -> None:
    with pytest.MonkeyPatch.context() as patch, suppress(TurboError):
        patch.setattr(template_budget, "STEPS", 20_000)
        patch.setattr(template_budget, "CHARACTERS", 1_000_000)
        text = "{% set ns = namespace(x='ab') %}{% set s = 'c' %}" + template
        chat.render(ChatTemplate(text, {}), SpecialTexts(["<|im_end|>"]), MESSAGES, True, {})


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=SETTINGS, generation=GENERATION)
def test_settings(config: Any, generation: Any, tmp_path: Path) -> None:
    huggingface(byte_level(), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    with suppress(TurboError):
        directory_sampling(tmp_path).stated()
    with suppress(TurboError):
        use(huggingface_source(tmp_path, {}))


@settings(max_examples=60)
@given(
    model=st.sampled_from(["gpt2", "llama"]),
    pieces=st.lists(
        st.tuples(TEXTS.map(lambda text: text.replace("\ud800", "?")), st.integers(0, 7), st.floats(-9, 9)),
        max_size=8,
    ),
    merges=st.lists(st.text(st.sampled_from("ab <s>"), max_size=4), max_size=3),
    ids=st.lists(st.integers(0, 7), max_size=4),
    template=st.sampled_from([None, "{{ messages[0].content }}<s>"]),
)
def test_gguf_vocabularies(model: str, pieces: Any, merges: Any, ids: Any, template: str | None) -> None:
    known = [i for i in ids if i < len(pieces)]
    source = TokenizerSource(
        kind="gguf",
        model=model,
        tokens=[piece for piece, _, _ in pieces],
        types=[kind for _, kind, _ in pieces],
        scores=[score for _, _, score in pieces],
        merges=merges,
        bos_id=known[0] if known else None,
        unknown_id=known[-1] if known else None,
        eos_ids=tuple(known[1:2]),
        chat_template=template,
    )
    with suppress(TurboError):
        use(source)
