"""A tokenizer from the vocabulary inside a GGUF file, which returns the same ids as llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Steps

from pyturbo._messages import shown
from pyturbo._once import once
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.errors import FormatError
from pyturbo.text import gguf_special
from pyturbo.text.byte_fallback import byte_of
from pyturbo.text.byte_level import piece_bytes
from pyturbo.text.chat_text import ChatText, unused_markers
from pyturbo.text.package import encoded, package_errors
from pyturbo.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from pyturbo.text.token_bound import SPACE, TokenBound, bound_of

_LONGEST_TOKEN = 4096  # characters; the time to find the merges of a token grows with the square


class GgufVocabulary:
    """A vocabulary of byte-level BPE (model "gpt2") or SentencePiece BPE (model "llama")."""

    def __init__(self, source: TokenizerSource) -> None:
        self._tokens = _checked_tokens(source)
        self.size = len(self._tokens)
        self._sentencepiece = source.model == "llama"
        if self._sentencepiece:
            self._tokenizer = _sentencepiece(self._tokens, source)
            bos, eos, add_bos = _default(source.bos_id, 1, self.size), source.eos_ids or (2,), True
        elif source.model == "gpt2":
            pre = _pre_tokenizer(source.pre)
            self._tokenizer = _byte_level(self._tokens, source.merges, pre)
            bos, eos, add_bos = source.bos_id, source.eos_ids, pre.add_bos
        else:
            raise FormatError(
                f'tokenizer.ggml.model: expected "gpt2" or "llama", got {shown(source.model or "nothing")}'
            )
        ends = tuple(i for i in eos if i < self.size)
        self._types = gguf_special.token_types(self._tokens, source.types)
        self._special = gguf_special.special_tokens(self._tokens, self._types)
        self.bos_id = bos
        self.eos_ids = gguf_special.end_ids(self._tokens, ends)
        marked = zip(self._tokens, self._types, source.types or self._types)
        self.special_texts: Collection[str] = {
            *(token for token, *kinds in marked if not gguf_special.HIDDEN.isdisjoint(kinds)),
            *(self._tokens[i] for i in (*self.eos_ids, bos) if i is not None),
        }
        self._source = source
        self._before = _added("bos", add_bos if source.add_bos is None else source.add_bos, bos)
        self._after = _added("eos", bool(source.add_eos), ends[0] if ends else None)
        self._space_prefix = self._sentencepiece and source.add_space_prefix is not False
        self.leading_spaces = int(self._space_prefix)
        ids = {
            "bos_token": bos,
            "eos_token": ends[0] if ends else None,
            "unk_token": source.unknown_id,
            "pad_token": source.padding_id,
        }
        self.named_tokens: Mapping[str, str] = {
            name: self._tokens[i] for name, i in ids.items() if i is not None
        }

    def encode(self, text: str, special: bool) -> list[int]:
        ids = list(self._before) if special else []
        after_special = True
        marker = None
        if isinstance(text, ChatText) and text.breaks:
            (marker,) = unused_markers([text])
            text = text.marked(marker)
        for part in gguf_special.partition(text, self._special):
            if isinstance(part, int):
                ids.append(part)
            else:
                tokenizer = self._tokenizer
                if marker is not None and marker in part:
                    tokenizer, part = self._plain_tokenizer, part.replace(marker, "")
                if self._sentencepiece:
                    prefix = SPACE if self._space_prefix and after_special else ""
                    part = prefix + part.replace(" ", SPACE)
                ids += encoded(tokenizer, part)
            after_special = isinstance(part, int)
        return ids + self._after if special else ids

    @once
    def _plain_tokenizer(self) -> Tokenizer:
        """Return a tokenizer without special tokens, which cannot build one from smaller pieces."""
        if self._sentencepiece:
            return _sentencepiece(self._tokens, self._source, self.special_texts)
        pre = _pre_tokenizer(self._source.pre)
        return _byte_level(self._tokens, self._source.merges, pre, self.special_texts)

    @once
    def bound(self) -> TokenBound | None:
        whole = [text for text, _ in self._special]
        unknown = self._sentencepiece and _default(self._source.unknown_id, 0, self.size) is not None
        pieces = dict.fromkeys(self._tokens)
        return bound_of(
            pieces, whole, self.special_texts, byte_level=not self._sentencepiece, unknown=unknown
        )

    def piece(self, token: int) -> str | None:
        return self._tokens[token] if 0 <= token < self.size else None

    def utf8(self, token: int) -> bytes:
        if not 0 <= token < self.size:
            return b""
        piece, kind = self._tokens[token], self._types[token]
        if kind in (gguf_special.CONTROL, gguf_special.UNKNOWN, gguf_special.USER_DEFINED):
            return piece.encode("utf-8")
        if kind == gguf_special.BYTE:
            return byte_of(piece) or b""
        if kind != gguf_special.NORMAL:
            return b""
        return piece.replace(SPACE, " ").encode("utf-8") if self._sentencepiece else piece_bytes(piece)

    def is_special(self, token: int) -> bool:
        return 0 <= token < self.size and self._types[token] in gguf_special.HIDDEN


def _checked_tokens(source: TokenizerSource) -> list[str]:
    """Return the pieces. Empty ones get a name, so that every piece is unique."""
    tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(source.tokens)]
    if not tokens:
        raise FormatError("tokenizer.ggml.tokens: expected a vocabulary, got nothing")
    seen: set[str] = set()
    for i, token in enumerate(tokens):
        if len(token) > _LONGEST_TOKEN:
            raise FormatError(
                f"tokenizer.ggml.tokens: {i}: expected at most {_LONGEST_TOKEN} characters, got {len(token)}"
            )
        if token in seen:
            raise FormatError(f"tokenizer.ggml.tokens: {i}: expected a new token, got {shown(token)} again")
        seen.add(token)
    return tokens


def _pre_tokenizer(name: str | None) -> PreTokenizer:
    if name is not None and name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise FormatError(f"tokenizer.ggml.pre: expected one of {known}, got {shown(name)}")
    return PRE_TOKENIZERS[name or "default"]


def _byte_level(
    tokens: list[str], merges: Sequence[str], pre: PreTokenizer, without: Collection[str] = ()
) -> Tokenizer:
    pairs = [_pair(i, merge) for i, merge in enumerate(merges)]
    if without:
        pairs = [pair for pair in pairs if not any(part in without for part in (*pair, "".join(pair)))]
    vocabulary = {token: i for i, token in enumerate(tokens) if token not in without}
    with package_errors("tokenizer.ggml.merges: expected merges of tokens"):
        model = BPE(vocabulary, pairs, ignore_merges=pre.whole_words)
    tokenizer = Tokenizer(model)
    splits = [Split(Regex(pattern), behavior="isolated") for pattern in pre.patterns]
    tokenizer.pre_tokenizer = Steps([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def _pair(i: int, merge: str) -> tuple[str, str]:
    place = merge.find(" ", 1)
    if place < 0:
        raise FormatError(f"tokenizer.ggml.merges: {i}: expected two pieces, got {shown(merge)}")
    return merge[:place], merge[place + 1 :]


def _sentencepiece(tokens: list[str], source: TokenizerSource, without: Collection[str] = ()) -> Tokenizer:
    scores = source.scores
    if len(scores) != len(tokens) or not all(map(math.isfinite, scores)):
        raise FormatError(
            f"tokenizer.ggml.scores: expected {len(tokens)} finite scores, got {len(scores)}: {shown(scores)}"
        )
    unknown = _default(source.unknown_id, 0, len(tokens))
    name = None if unknown is None else tokens[unknown]
    merges = _scored_merges(tokens, scores, without)
    vocabulary = {token: i for i, token in enumerate(tokens) if token not in without or token == name}
    with package_errors("tokenizer.ggml.tokens: expected a vocabulary"):
        return Tokenizer(BPE(vocabulary, merges, byte_fallback=True, unk_token=name))


def _scored_merges(
    tokens: list[str], scores: Sequence[float], without: Collection[str]
) -> list[tuple[str, str]]:
    """Return every way to merge two tokens into one: by the best score, then by the shorter left part."""
    vocabulary = set(tokens).difference(without)
    found = [
        (-scores[i], i, cut)
        for i, token in enumerate(tokens)
        if token in vocabulary
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    return [(tokens[i][:cut], tokens[i][cut:]) for _, i, cut in sorted(found)]


def _default(value: int | None, default: int, size: int) -> int | None:
    """Return the token that the file names, otherwise `default` if there is such a token."""
    return value if value is not None else default if default < size else None


def _added(name: str, wanted: bool, token: int | None) -> list[int]:
    if wanted and token is None:
        raise FormatError(
            f"tokenizer.ggml.{name}_token_id: expected a token that is added to texts, got nothing"
        )
    return [token] if wanted and token is not None else []
