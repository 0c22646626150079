"""POST /v1/completions, POST /v1/embeddings, and the paths that are not of any other server."""

from __future__ import annotations

from serve.supported.rows import (
    Api,
    accepted,
    by_another_model,
    changes,
    ignored,
    refused,
    supported,
    text_of,
)
from serve.supported.sampling import IGNORED, sampling
from serve.supported.thoughtful import NAME

_REPEATS = {"prompt": "The cat ran. The dog ran. " * 3 + "The", "max_tokens": 12}

COMPLETIONS = Api(
    "/v1/completions",
    {"model": "stories", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0},
    (
        supported("prompt: text", "or a list of one text", ["Once upon a"], changes()),
        supported("prompt: token ids", "", [5, 6], changes()),
        refused("prompt: several texts", "send a request for each", ["a", "b"]),
        *sampling(_REPEATS),
        accepted("reasoning_budget", "text has no thoughts", 1),
        supported(
            "echo",
            "the prompt stands before the reply; not beside `logprobs`",
            True,
            lambda reply, ask: text_of(reply) == "Once upon a time" + text_of(ask()),
        ),
        supported(
            "logprobs",
            "up to 20",
            2,
            lambda reply, ask: len(reply["choices"][0]["logprobs"]["top_logprobs"][0]) == 2,
        ),
        accepted("best_of: 1", "what it is without it", 1),
        refused("best_of: more", "", 2),
        *IGNORED,
        refused("suffix", "", "the end"),
    ),
)

EMBEDDINGS = Api(
    "/v1/embeddings",
    {"model": "stories", "input": "Once upon a time"},
    (
        supported("model", "", "chat", by_another_model),
        supported("input: texts", "up to 256", ["Once", "twice"], lambda reply, ask: len(reply["data"]) == 2),
        supported(
            "input: token ids",
            "of one text, or of several",
            [[5], [6, 7]],
            lambda reply, ask: reply["usage"]["prompt_tokens"] == 3,
        ),
        accepted("encoding_format: float", "what it is without it", "float"),
        supported(
            "encoding_format: base64",
            "32-bit numbers in little endian",
            "base64",
            lambda reply, ask: isinstance(reply["data"][0]["embedding"], str),
        ),
        accepted("dimensions", "only those of the model", 256),
        supported(
            "pooling",
            "not OpenAI's; `mean` or `last`",
            "last",
            lambda reply, ask: reply["data"] != ask()["data"],
        ),
        ignored("user", "", "somebody"),
    ),
)

TOKENIZE = Api(
    "/tokenize",
    {"model": "chat", "text": "Hi"},
    (
        supported("model", "", "stories", lambda reply, ask: reply["tokens"] != ask()["tokens"]),
        supported("text", "", "Hi there", lambda reply, ask: reply["count"] > ask()["count"]),
        *(
            supported(
                name,
                f"instead of `text`, as {others} has it",
                "Hi there",
                lambda reply, ask: reply == ask(text="Hi there"),
                text=None,
            )
            for name, others in (("content", "llama.cpp"), ("prompt", "vLLM"))
        ),
        supported(
            "add_special",
            "with the tokens that a prompt begins with",
            True,
            lambda reply, ask: reply["tokens"][1:] == ask(model=NAME)["tokens"],
            model=NAME,
        ),
        supported(
            "messages",
            "instead of `text`, as the chat template writes them",
            [{"role": "user", "content": "Hi"}],
            lambda reply, ask: reply["count"] > ask()["count"],
            text=None,
        ),
        supported(
            "tools",
            "with `messages`",
            [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}],
            lambda reply, ask: (
                reply["count"] > ask(text=None, messages=[{"role": "user", "content": "Hi"}])["count"]
            ),
            text=None,
            messages=[{"role": "user", "content": "Hi"}],
        ),
    ),
)

DETOKENIZE = Api(
    "/detokenize",
    {"model": "stories", "tokens": [5, 6]},
    (
        supported("model", "", "chat", lambda reply, ask: reply == ask(model=None) != ask()),
        supported(
            "tokens", "", [5], lambda reply, ask: ask()["text"].startswith(reply["text"]) and reply != ask()
        ),
    ),
)
