"""Replies that fit a JSON schema, a regular expression or a grammar, through the package llguidance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError, StateError
from pyturbo.text.finite import can_end
from pyturbo.text.grammar_tokens import GrammarTokens
from pyturbo.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    import llguidance

#: White space between the parts of JSON: a space, or line breaks with an indentation. Were any amount
#: allowed, some models would write nothing else.
_WHITE_SPACE = r" |\n{1,2}[ \t]{0,20}"

#: Sets of tokens that llguidance finds at once to be allowed, where every text of a set is: words, before the
#: sets of its own. A long run of letters, as in "[a-z ]{300}", else has it look at most of them one by one.
SLICES = ("[a-z]{1,16}", "[a-z ]{1,16}")

#: What a reply may be constrained by, one at a time.
CONSTRAINTS = {
    "schema": "a JSON schema that a reply can fit",
    "regex": "a regular expression that a reply can fit",
    "grammar": "a Lark grammar that a reply can fit",
}


class Constraint:
    """Follows the tokens of a reply, and says which tokens may come next. `Tokenizer.constraint` makes it.

    The end of a reply is allowed exactly where the text may end. One thread at a time.

    Attributes:
        ended: Whether the text is complete, and nothing can follow it.

    Examples:
        >>> tokenizer = pyturbo.load().tokenizer
        >>> constraint = tokenizer.constraint(regex="Lily( and Tim)?")
        >>> for token in tokenizer.encode("Lily and Tim"):
        ...     assert constraint.mask()[token // 32] >> (token % 32) & 1
        ...     constraint.accept(token)
        >>> constraint.ended
        True
    """

    def __init__(self, name: str, matcher: llguidance.LLMatcher, vocab: int, size: int) -> None:
        """Take the state of a parser over `size` tokens, the first `vocab` of which have logits."""
        self._name, self._matcher, self._vocab, self._size = name, matcher, vocab, size
        self._words = np.zeros(-(-size // 32), np.uint32)
        self._address = self._words.ctypes.data

    def mask(self) -> NDArray[np.uint32]:
        """Return the tokens that may come next, as `Sampler.sample` takes them; the next call changes it."""
        mask = self._computed()
        if self._matcher.is_error():
            raise StateError(f"{self._name}: the reply cannot go on: {_reason(self._matcher.get_error())}")
        return mask

    def _computed(self) -> NDArray[np.uint32]:
        """Return the mask; it has no meaning if the parser is then in a state of error."""
        self._matcher.unsafe_compute_mask_ptr(self._address, self._words.nbytes)
        if self._size > self._vocab:  # by one token, which stands for the end where the model has none
            self._words[self._vocab // 32] &= ~np.uint32(1 << self._vocab % 32)
        return self._words[: -(-self._vocab // 32)]

    def _obstacle(self) -> str:
        """Return why the reply could not go on after one of the tokens of the mask; empty if it could.

        The parser finds out what it has no room for when it goes on.
        """
        word = int(np.flatnonzero(self._words)[0])
        lowest = int(self._words[word])
        trial = self._matcher.deep_copy()
        goes_on = trial.consume_token(32 * word + (lowest & -lowest).bit_length() - 1)
        return "" if goes_on else _reason(trial.get_error())

    def accepts(self, tokens: Sequence[int]) -> bool:
        """Return whether these tokens may come next, one after the other. The state stays as it is."""
        return bool(self._matcher.validate_tokens(list(tokens)) == len(tokens))

    def accept(self, token: int) -> None:
        """Go on to the state after a token. StateError if it is none of those that may come next."""
        if not self._matcher.consume_token(token):
            raise StateError(
                f"{self._name}: expected a token that the mask allows, got {token}: "
                f"{_reason(self._matcher.get_error())}"
            )

    @property
    def ended(self) -> bool:
        """Whether the text is complete, and nothing can follow it."""
        return bool(self._matcher.is_stopped())

    def copy(self) -> Constraint:
        """Return an independent constraint in the same state."""
        return Constraint(self._name, self._matcher.deep_copy(), self._vocab, self._size)

    def __copy__(self) -> Constraint:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Constraint:
        return self.copy()

    def __repr__(self) -> str:
        return f"Constraint({self._name}{', ended' if self.ended else ''})"


class Constraints:
    """Makes constraints over the tokens of a vocabulary, which are prepared once."""

    def __init__(self, vocabulary: Vocabulary, vocab: int) -> None:
        """Take the tokens below `vocab`, the number of logits."""
        package = _package()
        tokens = GrammarTokens(vocabulary, vocab)
        self._vocab = vocab
        slices = [*SLICES, *package.LLTokenizer.general_slices()]
        self._tokenizer = package.LLTokenizer(tokens, eos_token=tokens.ends or None, slices=slices)
        self._limits = package.LLParserLimits(verbose_errors=False)

    def make(self, name: str, value: Any, around: str | None = None) -> Constraint:
        """Return the constraint of a schema, regex or grammar; ArgumentError if no reply can fit it.

        `around` is a Lark grammar of the whole reply, in which `@answer` stands for what fits.
        """
        constraint = self._made(name, _grammar(name, value))
        return constraint if around is None else self._made(name, _within(around, _grammar(name, value)))

    def _made(self, name: str, grammar: str) -> Constraint:
        matcher = _package().LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        constraint = Constraint(name, matcher, self._vocab, self._tokenizer.vocab_size)
        fits = not matcher.is_error() and constraint._computed().any()
        if matcher.is_error():
            raise ArgumentError(f"{name}: expected {CONSTRAINTS[name]}: {_reason(matcher.get_error())}")
        if not fits:  # the end of a reply is all that could follow, and the model has no token for it
            raise ArgumentError(
                f"{name}: expected {CONSTRAINTS[name]}, got one that only the empty text fits"
            )
        if reason := constraint._obstacle():
            raise ArgumentError(f"{name}: expected {CONSTRAINTS[name]}: {reason}")
        return constraint


def only_one(schema: Any, regex: Any, grammar: Any) -> tuple[str, Any] | None:
    """Return the name and the value of the one that is given, None if none is."""
    values = zip(CONSTRAINTS, (schema, regex, grammar))
    given = [(name, value) for name, value in values if value is not None]
    if len(given) > 1:
        names = " and ".join(name for name, _ in given)
        raise ArgumentError(f"{given[1][0]}: expected one of schema, regex and grammar, got {names}")
    return given[0] if given else None


def check(name: str, value: Any) -> None:
    """Refuse a value that is not even a text, or a schema that is not JSON, without a tokenizer."""
    if name == "schema":
        _json(value)
    elif not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise ArgumentError(f"{name}: expected text, got {shown(value)}")


def validate(name: str, value: Any) -> None:
    """Refuse also what is malformed, as far as that can be found without a tokenizer."""
    message = _package().LLMatcher.validate_grammar(_grammar(name, value))
    if message:
        raise ArgumentError(f"{name}: expected {CONSTRAINTS[name]}: {_reason(message)}")


def _grammar(name: str, value: Any) -> str:
    """Return a grammar as the package takes it."""
    check(name, value)
    matcher = _package().LLMatcher
    if name == "schema":
        options, schema = {"whitespace_pattern": _WHITE_SPACE}, _json(value)
        if not can_end(json.loads(schema)):
            raise ArgumentError(f"schema: expected {CONSTRAINTS[name]}, got one whose values cannot end")
        try:
            return str(matcher.grammar_from_json_schema(schema, defaults=options))
        except ValueError as error:  # half a surrogate pair
            raise ArgumentError(f"schema: expected JSON, got {shown(str(error))}") from None
    return str(matcher.grammar_from_regex(value) if name == "regex" else matcher.grammar_from_lark(value))


def _within(around: str, grammar: str) -> str:
    """Return a Lark grammar with another grammar, as `_grammar` returns it, for its `@answer`."""
    is_list = grammar.startswith('{"grammars":')
    (inner,) = json.loads(grammar)["grammars"] if is_list else [{"lark_grammar": grammar}]
    return json.dumps({"grammars": [{"lark_grammar": around}, {**inner, "name": "answer"}]})


def _json(schema: Any) -> str:
    """Return a schema as JSON text."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"schema: expected JSON, got {shown(str(error))}") from None
    if not isinstance(schema, Mapping):
        raise ArgumentError(f"schema: expected an object or its JSON text, got {shown(schema)}")
    try:
        return json.dumps(dict(schema), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"schema: expected what JSON can hold, got {shown(str(error))}") from None


def _reason(message: str) -> str:
    """Return the line of a message of the package that says what is wrong."""
    lines = [line.strip() for line in message.splitlines()]
    found = [line for line in lines if line.startswith("error: ")] or lines[:1] or [""]
    if found[0] == "NoExtensionBias":
        return "no token can come next"
    return shown(found[0].removeprefix("error: "))


def _package() -> Any:
    """Import the package, with the first constraint."""
    try:
        import llguidance
    except ImportError:
        raise StateError(
            'schema, regex and grammar need llguidance: pip install "pyturbo-llm[grammar]"'
        ) from None
    return llguidance
