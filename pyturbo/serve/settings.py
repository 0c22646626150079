"""What a server allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from pyturbo._arguments import index
from pyturbo._messages import shown
from pyturbo.engine.embedding import Pooling
from pyturbo.errors import ArgumentError


@dataclass(frozen=True)
class Settings:
    """Limits and permissions of a server.

    Attributes:
        keys: API keys, of which each request must have one; without any, no request needs one.
        hosts: Names under which the server is addressed; other requests are refused, because a page of
            another site may have sent them. Empty: any name.
        origins: Origins of other sites whose pages may use the server; "*" allows all.
        max_tokens: Tokens of a reply, where the request does not say.
        max_reply: The most tokens of a reply, whatever a request says: a conversation has memory for all of
            them from its beginning. A reply that is cut off there has the finish reason "length".
        pooling: How the states of a text become its vector where a request for embeddings does not say, see
            `Model.embed`.
        max_replies: The largest `n` of a request.
        max_inputs: Texts of a request for embeddings.
        body_bytes: The largest body of a request.
        json_depth: The deepest nesting of a body.
        body_seconds: How long a body may take to arrive.
        reply_seconds: How long a reply may take. It ends with its next token, has all text up to there and
            the finish reason "length"; without another token for a minute, only the text that was certain.
        quiet_seconds: After this time without a token, a stream has a comment with its progress.
        retry_seconds: What a client is told that has to come back later.

    Examples:
        >>> from pyturbo.serve import Settings
        >>> Settings(body_bytes=0)
        Traceback (most recent call last):
        ...
        pyturbo.errors.ArgumentError: Settings: body_bytes: expected an integer from 1 on, got 0
    """

    keys: Sequence[str] = field(default=(), repr=False)
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    max_tokens: int = 1024
    max_reply: int = 8192
    pooling: Pooling = "mean"
    max_replies: int = 8
    max_inputs: int = 256
    body_bytes: int = 16 << 20
    json_depth: int = 64
    body_seconds: float = 30.0
    reply_seconds: float = 3600.0
    quiet_seconds: float = 1.0
    retry_seconds: int = 2

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            name = f"Settings: {each.name}"
            if each.type == "int":
                index(name, value, least=1)
            elif each.type == "float":
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
                    raise ArgumentError(f"{name}: expected seconds above 0, got {shown(value)}")
            elif each.type == "Pooling":
                if value not in ("mean", "last"):
                    raise ArgumentError(f"{name}: expected mean or last, got {shown(value)}")
            elif isinstance(value, str) or not all(isinstance(text, str) and text for text in value):
                raise ArgumentError(f"{name}: expected a list of texts that are not empty")
