"""The pre-tokenizers that GGUF files name, which split a text before byte-level BPE.

The expressions are those of the models' own tokenizers. They are applied one after another, each to the parts
that the previous one left; a match is a part, and so is the text between two matches.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PreTokenizer:
    """Expressions in the syntax of Oniguruma, and settings that apply if the file does not state them."""

    patterns: tuple[str, ...]
    whole_words: bool = False  # whether a part that is a token is not merged
    add_bos: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

# A word of upper and lower case letters, with upper case first.
_CAPITAL, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CAPITALS_SMALL = rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}*{_SMALL}+"
_CAPITALS = rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}+{_SMALL}*"
_OTHERS_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

# The same of all scripts but Chinese characters.
_NOT_HAN = r"&&[^\p{Han}]]"
_CAPITAL_NOT_HAN, _SMALL_NOT_HAN = (letter[:-1] + _NOT_HAN for letter in (_CAPITAL, _SMALL))

# Letters with upper and lower case, as DeepSeek lists them.
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_HAN_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"

_DIGITS_GPT2 = PreTokenizer((r"\p{N}", _GPT2))
_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_LLAMA3 = PreTokenizer(
    ("|".join((_CONTRACTIONS, _WORDS, r"\p{N}{1,3}", _OTHERS, _SPACES)),), whole_words=True, add_bos=True
)
_QWEN2 = PreTokenizer(("|".join((_CONTRACTIONS, _WORDS, r"\p{N}", _OTHERS, _SPACES)),))
#: Llama 3's expression, with the settings of others.
_LIKE_LLAMA3 = PreTokenizer(_LLAMA3.patterns)
_GPT4O = PreTokenizer(
    (
        "|".join(
            (
                rf"{_CAPITALS_SMALL}{_CONTRACTIONS}?",
                rf"{_CAPITALS}{_CONTRACTIONS}?",
                r"\p{N}{1,3}",
                _OTHERS_PATHS,
                _SPACES,
            )
        ),
    )
)

PRE_TOKENIZERS = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": _PLAIN_GPT2,
    "mpt": _PLAIN_GPT2,
    "olmo": _PLAIN_GPT2,
    "phi-2": _PLAIN_GPT2,
    "gigachat": _PLAIN_GPT2,
    "trillion": _PLAIN_GPT2,
    "superbpe": PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "refact": _DIGITS_GPT2,
    "command-r": _DIGITS_GPT2,
    "minerva-7b": _DIGITS_GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "pixtral": _LLAMA3,
    "smaug-bpe": _LIKE_LLAMA3,
    "glm4": _LIKE_LLAMA3,
    "chatglm-bpe": _LIKE_LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "megrez": _QWEN2,
    "seed-coder": PreTokenizer(
        ("|".join((_CONTRACTIONS, _WORDS, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES)),)
    ),
    "kimi-k2": PreTokenizer(
        (
            "|".join(
                (
                    r"\p{Han}+",
                    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL_NOT_HAN}*{_SMALL_NOT_HAN}+{_CONTRACTIONS}?",
                    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL_NOT_HAN}+{_SMALL_NOT_HAN}*{_CONTRACTIONS}?",
                    r"\p{N}{1,3}",
                    _OTHERS,
                    _SPACES,
                )
            ),
        )
    ),
    "qwen35": PreTokenizer(
        (
            "|".join(
                (
                    _CONTRACTIONS,
                    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
                    r"\p{N}",
                    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
                    _SPACES,
                )
            ),
        )
    ),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_CASED}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            _CJK,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-v3": PreTokenizer(
        (
            r"\p{N}{1,3}",
            _HAN_KANA,
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
        )
    ),
    "gpt-4o": _GPT4O,
    "llama4": _GPT4O,
    "tekken": PreTokenizer(
        ("|".join((_CAPITALS_SMALL, _CAPITALS, r"\p{N}", _OTHERS_PATHS, _SPACES)),),
        whole_words=True,
        add_bos=True,
    ),
}
