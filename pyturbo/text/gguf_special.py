"""Special tokens of a GGUF vocabulary: their kinds, and finding them in a text as llama.cpp does."""

from __future__ import annotations

from collections.abc import Sequence

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
HIDDEN = frozenset((CONTROL, UNKNOWN))  # types of tokens that are not shown in text

#: A token with one of these texts is a control token that ends a reply, whatever its type. The last two lines
#: are tokens between the files of a repository.
_ENDS = frozenset(
    """
    <|eot_id|> <|eom_id|> <|im_end|> <|end|> <|return|> <|call|> <|calls|> <|flush|> <|tool_response>
    <|endoftext|> <|end_of_text|> <end_of_turn> <end_of_utterance> <turn|> </s> <eos> [EOS] <EOT> _<EOT> [EOT]
    <\uff5cend\u2581of\u2581sentence\uff5c> [e~[
    <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|file_sep|>
    <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>
    """.split()  # noqa: SIM905
)
#: Control tokens as well, which mark the text before and after a gap to be filled.
_FILL_IN = frozenset(
    """
    <|fim_prefix|> <fim-prefix> <fim_prefix> <PRE> \u2581<PRE> <|code_prefix|> <|prefix|>
    <|fim_suffix|> <fim-suffix> <fim_suffix> <SUF> \u2581<SUF> <|code_suffix|> <|suffix|>
    <|fim_middle|> <fim-middle> <fim_middle> <MID> \u2581<MID> <|code_middle|> <|middle|>
    <\uff5cfim\u2581begin\uff5c> <\uff5cfim\u2581hole\uff5c> <\uff5cfim\u2581end\uff5c>
    """.split()  # noqa: SIM905
)
#: Tokens of the Harmony format; in a vocabulary with these, <|end|> ends only a part of a reply.
_HARMONY_ENDS = frozenset(("<|return|>", "<|call|>"))
_HARMONY_PARTS = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))


def token_types(tokens: Sequence[str], types: Sequence[int]) -> list[int]:
    """Return the type of every token; the texts of some tokens override the type in the file."""
    result = list(types) if types else [NORMAL] * len(tokens)
    shown = _shown_parts(tokens)
    for i, token in enumerate(tokens):
        if token in shown:
            result[i] = USER_DEFINED
        elif token in _ENDS or token in _FILL_IN:
            result[i] = CONTROL
    return result


def end_ids(tokens: Sequence[str], ends: Sequence[int]) -> tuple[int, ...]:
    """Return the tokens that end a reply: `ends`, which the file names, and those known by their text."""
    shown = _shown_parts(tokens)
    known = (i for i, token in enumerate(tokens) if token in _ENDS and token not in shown)
    return tuple(dict.fromkeys((*ends, *known)))


def special_tokens(tokens: Sequence[str], types: Sequence[int]) -> list[tuple[str, int]]:
    """Return the tokens that `partition` looks for, the longest first."""
    found = [
        (token, i)
        for i, (token, kind) in enumerate(zip(tokens, types))
        if kind in (CONTROL, USER_DEFINED, UNKNOWN)
    ]
    return sorted(found, key=lambda entry: -len(entry[0].encode("utf-8")))


def partition(text: str, special: Sequence[tuple[str, int]]) -> list[str | int]:
    """Split a text at its special tokens, which are searched in the order of the list."""
    parts: list[str | int] = [text] if text else []
    for token, number in special:
        if token not in text:
            continue
        divided: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                divided.append(part)
                continue
            first, *others = part.split(token)
            divided += [first] if first else []
            for other in others:
                divided += [number, other] if other else [number]
        parts = divided
    return parts


def _shown_parts(tokens: Sequence[str]) -> frozenset[str]:
    """Return texts of tokens that are shown, although they look like control tokens."""
    harmony = len(_HARMONY_ENDS.intersection(tokens)) == len(_HARMONY_ENDS)
    return _HARMONY_PARTS | {"<|end|>"} if harmony else _HARMONY_PARTS
