"""The tokenizer of a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyturbo._arguments import flag, index
from pyturbo._messages import shown
from pyturbo._once import once
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.text import chat
from pyturbo.text.breakers import breaker_tokens
from pyturbo.text.chat_text import ChatText
from pyturbo.text.detokenizer import Detokenizer
from pyturbo.text.special_texts import SpecialTexts
from pyturbo.text.spelling import tokens_inside
from pyturbo.text.vocabulary import Vocabulary, token_id

if TYPE_CHECKING:
    from pyturbo.text.chat_template import ChatTemplate
    from pyturbo.text.constraint import Constraint, Constraints
    from pyturbo.text.dialects import Dialect


_KEPT_BREAKERS = 64  # texts whose sequences of tokens are remembered


class Tokenizer:
    """A tokenizer: text to token ids and back. It is immutable, and several threads may use it.

    Attributes:
        vocab_size: The number of ids; all are below it.
        bos_id: The token that a text begins with, if the checkpoint has one.
        eos_ids: The tokens that end a reply.
        chat_template: The Jinja template of a conversation.

    Examples:
        >>> tokenizer = pyturbo.load().tokenizer
        >>> tokenizer.encode("Once upon a time")
        [443, 457, 261, 413]
        >>> tokenizer.decode([443, 457, 261, 413])
        'Once upon a time'
    """

    vocab_size: int
    bos_id: int | None
    eos_ids: tuple[int, ...]
    chat_template: str | None

    def __init__(self, source: TokenizerSource) -> None:
        if not isinstance(source, TokenizerSource):
            raise ArgumentError(
                f"Tokenizer: source: expected a TokenizerSource, got {shown(source)}; "
                "pyturbo.load(path).tokenizer is the tokenizer of a checkpoint"
            )
        self._vocabulary = _vocabulary(source)
        self.vocab_size = self._vocabulary.size
        self.bos_id = self._vocabulary.bos_id
        self.eos_ids = self._vocabulary.eos_ids
        self.chat_template = source.chat_template
        self._constraints: dict[int, Constraints] = {}  # by the number of logits
        self._breakers: dict[str, list[tuple[int, ...]]] = {}

    def __repr__(self) -> str:
        chat = "no chat template" if self.chat_template is None else "chat template"
        return (
            f"Tokenizer(vocab_size={self.vocab_size}, bos_id={self.bos_id}, eos_ids={self.eos_ids}, {chat})"
        )

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the token ids of a text. Text such as <|im_start|> becomes the token that it names.

        `special` adds the tokens for the beginning and the end of a text if the tokenizer's settings ask for
        them. A rendered chat already holds them: encode it with `special=False`. In a chat that `chat` has
        returned, only the template writes tokens such as <|im_start|>; in a message they are plain text.
        """
        if not isinstance(text, str):
            raise ArgumentError(f"encode: text: expected text, got {shown(text)}")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ArgumentError(f"encode: text: expected whole characters: {error}") from None
        return self._vocabulary.encode(text, flag("encode: special", special))

    def least_tokens(self, text: str) -> int:
        """Return a number of tokens that a text has at least, much sooner than `encode` has them.

        It is 0 if the tokenizer may leave out some text, or does something else that is not known here.

        Examples:
            >>> tokenizer = pyturbo.load().tokenizer
            >>> 1000 < tokenizer.least_tokens("Once upon a time" * 2000) < 8000
            True
        """
        if not isinstance(text, str):
            raise ArgumentError(f"least_tokens: text: expected text, got {shown(text)}")
        bound = self._vocabulary.bound
        return 0 if bound is None else bound.least(text)

    def encode_inside(self, text: str) -> list[int]:
        """Return the token ids of a text that follows another, without what begins a text.

        Examples:
            >>> tokenizer = pyturbo.load().tokenizer
            >>> tokenizer.decode(tokenizer.encode_inside("ly told"))
            'ly told'
        """
        if not isinstance(text, str):
            raise ArgumentError(f"encode_inside: text: expected text, got {shown(text)}")
        return tokens_inside(self._vocabulary, text) or self.encode(text, special=False)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of token ids; an id without a token adds nothing."""
        detokenizer = Detokenizer(self._vocabulary, flag("decode: skip_special", skip_special))
        return "".join([*map(detokenizer.add, _ids("decode: ids", ids)), detokenizer.finish()])

    def detokenizer(
        self, skip_special: bool = True, continues: bool = False, markers: Collection[str] = ()
    ) -> Detokenizer:
        """Return a decoder for one token at a time, whose text is that of `decode`, or continues a text.

        `markers` are texts of special tokens that are not skipped, such as those of a `dialect`.
        """
        skips = flag("detokenizer: skip_special", skip_special)
        if isinstance(markers, str) or not isinstance(markers, Collection):
            raise ArgumentError(f"detokenizer: markers: expected a list of texts, got {shown(markers)}")
        return Detokenizer(self._vocabulary, skips, flag("detokenizer: continues", continues), markers)

    def piece(self, id: int) -> str:  # noqa: A002 (the name of the public interface)
        """Return the token as the vocabulary spells it; "" if there is none with this id."""
        return self._vocabulary.piece(token_id("piece: id", id)) or ""

    def token_bytes(self, id: int) -> bytes:  # noqa: A002 (as `piece` has it)
        """Return the bytes of a token in UTF-8, of which a character may be incomplete; a special one's text.

        Examples:
            >>> tokenizer = pyturbo.load().tokenizer
            >>> [tokenizer.token_bytes(token) for token in tokenizer.encode("Once upon")]
            [b'Once', b' upon']
        """
        token = token_id("token_bytes: id", id)
        return self._vocabulary.utf8(token) or (self._vocabulary.piece(token) or "").encode()

    def chat(
        self, messages: Sequence[Mapping[str, Any]] | None = None, /, generate: bool = True, **variables: Any
    ) -> ChatText:
        """Return a conversation as the checkpoint's template writes it, to encode with `special=False`.

        `generate` ends it where the reply begins: if the last message is the assistant's, at its end.
        `variables`, such as tools, are passed to the template. The result is text that knows where messages
        spell special tokens, so that `encode` treats these as plain text. Parts of a message are joined if
        the template supports only text. `messages` may be a keyword argument too.
        """
        if messages is None:
            messages = variables.pop("messages", None)
        if self.chat_template is None:
            raise ArgumentError("chat: the checkpoint has no chat template")
        generate = flag("chat: generate", generate)
        return chat.render(self._template, self._special_texts, messages, generate, variables)

    def decode_chat(self, ids: Sequence[int]) -> ChatText:
        """Return the text of tokens in a chat, with special ones, as `chat` would return it."""
        detokenizer = self.detokenizer(skip_special=False, continues=True)
        whole, plain = ChatText(""), ""
        for token in _ids("decode_chat: ids", ids):
            text = detokenizer.add(token)
            if self._vocabulary.is_special(token):
                whole, plain = whole + self._special_texts.plain(plain) + text, ""
            else:
                plain += text
        return whole + self._special_texts.plain(plain + detokenizer.finish())

    def constraint(
        self,
        schema: Mapping[str, Any] | str | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        *,
        vocab: int | None = None,
        chat: str | None = None,
    ) -> Constraint:
        """Return a constraint for a reply: one of a JSON schema, a regular expression and a Lark grammar.

        It needs the extra `grammar`. ArgumentError if it is malformed, or if no reply can fit it. `vocab` is
        the number of logits; None: `vocab_size`. With `chat`, the rendered chat before the reply, the
        constraint holds for what follows the thoughts, unless `grammar` is one of the tokenizer's `dialect`.
        """
        from pyturbo.text.constraint import Constraints, only_one
        from pyturbo.text.dialects import ReplyGrammar

        given = only_one(schema, regex, grammar)
        if given is None:
            raise ArgumentError("constraint: expected one of schema, regex and grammar, got none")
        size = self.vocab_size if vocab is None else index("constraint: vocab", vocab, least=1, bits=24)
        if size not in self._constraints:
            self._constraints[size] = Constraints(self._vocabulary, size)
        if chat is None or isinstance(given[1], ReplyGrammar):
            return self._constraints[size].make(*given)
        if not isinstance(chat, str):
            raise ArgumentError(f"constraint: chat: expected text, got {shown(chat)}")
        return self._constraints[size].make(*given, self.dialect.around_answer(chat))

    def token(self, text: str) -> int:
        """Return the token that spells a text. ArgumentError if there is no single one."""
        if not isinstance(text, str):
            raise ArgumentError(f"token: text: expected text, got {shown(text)}")
        ids = self.encode(text, special=False)
        if len(ids) != 1 or not self._vocabulary.is_special(ids[0]):
            ids = tokens_inside(self._vocabulary, text) or ids
        if len(ids) != 1 or self._vocabulary.utf8(ids[0]) != text.encode("utf-8"):
            raise ArgumentError(
                f"token: text: expected the text of one token, got {shown(text)} with the tokens {shown(ids)}"
            )
        return ids[0]

    def breakers(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the sequences of tokens that texts are part of, as `Sampler` takes `dry_breakers`.

        A token that has a text in it is one. So is a token that ends with the beginning of a text, followed
        by the tokens of the rest.
        """
        listed = isinstance(texts, Sequence) and not isinstance(texts, str)
        if not listed or not all(isinstance(text, str) and text for text in texts):
            raise ArgumentError(
                f"breakers: texts: expected a list of texts that are not empty, got {shown(texts)}"
            )
        found = {text: self._breakers.get(text) or breaker_tokens(self._vocabulary, text) for text in texts}
        self._breakers = {**self._breakers, **found} if len(self._breakers) < _KEPT_BREAKERS else found
        return [sequence for text in texts for sequence in found[text]]

    @once
    def dialect(self) -> Dialect:
        """How replies of this model write thoughts and calls; see `pyturbo.text.dialects`."""
        from pyturbo.text.dialects import MARKERS, dialect_of

        return dialect_of(self.chat_template, self._special_ids(MARKERS))

    def _special_ids(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the ids of those texts that are special tokens."""
        found = {}
        for text in texts:
            ids = self._vocabulary.encode(text, special=False)
            if len(ids) == 1 and self._vocabulary.is_special(ids[0]):
                found[text] = ids[0]
        return found

    @once
    def _special_texts(self) -> SpecialTexts:
        return SpecialTexts(self._vocabulary.special_texts)

    @once
    def _template(self) -> ChatTemplate:
        from pyturbo.text.chat_template import ChatTemplate

        return ChatTemplate(self.chat_template or "", self._vocabulary.named_tokens)


def _ids(what: str, ids: Any) -> list[int]:
    try:
        given = None if isinstance(ids, (str, Mapping)) else list(ids)
    except TypeError:
        given = None
    if given is None:
        raise ArgumentError(f"{what}: expected a list of token ids, got {shown(ids)}")
    return [token_id(what, each) for each in given]


def _vocabulary(source: TokenizerSource) -> Vocabulary:
    """Return the vocabulary. The `tokenizers` package is imported here, with the first tokenizer."""
    if source.kind == "gguf":
        from pyturbo.text.gguf_tokenizer import GgufVocabulary

        try:
            return GgufVocabulary(source)
        except FormatError as error:
            raise FormatError(f"{source.file}: {error}" if source.file else str(error)) from None
    from pyturbo.text.huggingface_tokenizer import HuggingFaceVocabulary

    return HuggingFaceVocabulary(source)
