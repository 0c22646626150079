"""Classes and functions with arguments of wrong types: they name the argument and what was expected.

Operations are in test_careless_operations.py, options of the command line in tests/cli.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
from careless import Thing, complaints, unknown_keyword
from pyturbo import Recorder, Tensor, symbol
from pyturbo.checkpoint import open_checkpoint
from pyturbo.convert import convert
from pyturbo.pack import pack, verify
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_hf

#: A function, and for each argument a valid value, wrong ones, and further names that messages may use.
Case = tuple[Callable[..., Any], dict[str, tuple[Any, ...]]]

NOT_TEXT = (Thing(), ["a"], {}, 3, None)
NOT_A_NAME = (*NOT_TEXT, "typo")
NOT_A_COUNT = (Thing(), ["a"], {}, "x", 1.5, -1, 2**70, None)
NOT_A_NUMBER = (Thing(), ["a"], {}, "x", None)
NOT_A_FLAG = ("no", 2, Thing(), None)
NOT_A_DTYPE = (Thing(), "typo", 3)
NOT_A_PATH = (Thing(), ["a"], {}, 3, None)
NOT_AN_ARRAY = (Thing(), ["a"], {}, "x", None, 3)
NOT_A_DEVICE = (Thing(), ["cpu"], {}, 3)
NOT_IDS = (Thing(), ["a", "b"], {"a": 1}, "text", [1.5], [None], None)
NOT_TOKENS = (*NOT_IDS, [-1], [[1]], 3.5)


def but(wrong: tuple[Any, ...], *valid: Any) -> tuple[Any, ...]:
    """Leave out values that are valid here."""
    return tuple(value for value in wrong if not any(value is each for each in valid))


def devices() -> Iterator[tuple[str, Case]]:
    device = pyturbo.Device("cpu")
    array = np.ones(8, np.float32)
    buffer, kernel = device.buffer(array), device.kernel("add")
    yield (
        "Device",
        (
            pyturbo.Device,
            {
                "name": ("cpu", NOT_A_NAME, "device"),
                "threads": (1, but(NOT_A_COUNT, None)),
                "check": (False, but(NOT_A_FLAG, None)),
                "precision": ("fast", NOT_A_NAME),
            },
        ),
    )
    wrong_constants = (3, "x", ["a"], {"a": 1}, Thing())
    arguments: dict[str, tuple[Any, ...]]
    arguments = {"name": ("add", NOT_A_NAME, "kernel"), "constants": (None, wrong_constants)}
    yield "Device.kernel", (device.kernel, arguments)
    shapes = (Thing(), ["a"], {"a": 1}, "x", 1.5, -1, 2**70, None)
    yield "Device.empty", (device.empty, {"shape": (3, shapes), "dtype": ("float32", NOT_A_DTYPE)})
    yield "Device.buffer", (device.buffer, {"source": (array, NOT_AN_ARRAY, "buffer")})
    yield "Device.constant", (device.constant, {"source": (array, NOT_AN_ARRAY, "buffer")})
    arguments = {
        "path": (__file__, NOT_A_PATH),
        "dtype": ("uint8", NOT_A_DTYPE),
        "shape": (4, but(shapes, None)),
        "offset": (0, NOT_A_COUNT),
    }
    yield "Device.map", (device.map, arguments)
    arguments = {"shape": (2, shapes), "dtype": ("float32", NOT_A_DTYPE), "offset": (4, NOT_A_COUNT)}
    yield "Buffer.view", (buffer.view, arguments)

    def launch(a: Any, count: Any, **geometry: Any) -> None:
        kernel(a, buffer, buffer, count, **geometry)

    arguments = {"a": (buffer, NOT_AN_ARRAY), "count": (3, NOT_A_COUNT)}
    yield "Kernel", (launch, arguments)
    arguments = {"groups": (1, ("x", -1, 1.5, Thing())), "threads": (256, ("x", -1, 1.5, Thing()))}
    yield "Kernel with groups", (partial(launch, buffer, 3), arguments)


def programs() -> Iterator[tuple[str, Case]]:
    device = pyturbo.Device("cpu")
    buffer, kernel = device.buffer(np.ones(8, np.float32)), device.kernel("add")
    names = ("tokens", 3, None, [3], Thing())
    arguments: dict[str, tuple[Any, ...]]
    arguments = {
        "device": (device, (*NOT_A_DEVICE, "cpu", None)),
        "symbols": (("a",), names),
        "blocks": (("b",), names),
    }
    yield "Program", (pyturbo.Program, arguments)

    def add(kernel: Any, memory: Any, count: Any, **options: Any) -> None:
        pyturbo.Program(device).add(kernel, buffer, memory, buffer, count, **options)

    arguments = {
        "kernel": (kernel, (3, "add", None)),
        "memory": (buffer, NOT_AN_ARRAY, "b"),
        "count": (3, NOT_A_COUNT),
        "label": ("a", NOT_TEXT),
    }
    yield "Program.add", (add, arguments)
    program = pyturbo.Program(device, ("n",))
    program.add(kernel, buffer, buffer, buffer, symbol("n"))
    wrong = [*(each for each in NOT_A_COUNT if each != {}), {"n": 3}, {3: 3}]  # "n" is no cursor
    advance = (0, wrong)
    arguments = {
        "n": (3, NOT_A_COUNT),
        "blocks": ((), (3, None, "x", [3], Thing())),
        "wait": (True, NOT_A_FLAG),
        "advance": advance,
        "ahead": (False, NOT_A_FLAG),
    }
    yield "Program.run", (program.run, arguments)
    arguments = {"n": (3, NOT_A_COUNT), "blocks": ((), (3, "x", [3], Thing()))}
    yield "Program.prepare", (program.prepare, arguments)
    yield "Program.profile", (program.profile, {"n": (3, NOT_A_COUNT), "advance": advance})
    limits = ("tokens", 3, None, [3], Thing(), {"a": "x"}, {"a": -1}, {"a": 1.5}, {3: 3})
    arguments = {
        "device": (device, (*NOT_A_DEVICE, "cpu", None)),
        "symbols": ({"a": 3}, limits),
        "blocks": (("b",), names),
    }
    yield "Recorder", (Recorder, arguments)
    recorder = Recorder(device, {"tokens": 8})
    tensor = Tensor(device.empty((8, 4)), (8, 4), "float32")
    extents = ("x", 3, None, ["a"], (1.5,), (-1,), Thing())
    arguments = {"shape": ((3, 4), (*extents, (symbol("other"),))), "dtype": ("float32", NOT_A_DTYPE)}
    yield "Recorder.empty", (recorder.empty, arguments)
    yield (
        "Recorder.into",
        (lambda target: recorder.into(target).__enter__(), {"target": (tensor, NOT_AN_ARRAY)}),
    )
    yield "Recorder.label", (lambda name: recorder.label(name).__enter__(), {"name": ("a", NOT_TEXT)})
    arguments = {
        "memory": (buffer, NOT_AN_ARRAY),
        "shape": ((2, 4), extents),
        "dtype": ("float32", NOT_A_DTYPE),
    }
    yield "Tensor", (Tensor, arguments)
    yield "Tensor.rows", (tensor.rows, {"first": (1, NOT_A_COUNT), "count": (1, NOT_A_COUNT)})
    yield "Tensor.columns", (tensor.columns, {"first": (1, NOT_A_COUNT), "count": (1, NOT_A_COUNT)})
    wrong_shapes = (("x", 32), (None, 32), (-1, 32), (1.5, 8), (Thing(),))
    yield "Tensor.reshape", (lambda shape: tensor.reshape(*shape), {"shape": ((4, 8), wrong_shapes)})
    yield "symbol", (symbol, {"name": ("a", NOT_TEXT)})


SAMPLING: dict[str, tuple[Any, ...]] = {
    "temperature": (0.5, (*NOT_A_NUMBER, -1, float("nan"))),
    "top_p": (0.5, (*NOT_A_NUMBER, -1, 2, float("nan"))),
    "top_k": (3, NOT_A_COUNT),
    "min_p": (0.1, (*NOT_A_NUMBER, -1, 2, float("nan"))),
    "repetition_penalty": (1.1, (*NOT_A_NUMBER, -1, float("nan"))),
    "seed": (1, but(NOT_A_COUNT, None)),
    "presence_penalty": (0.5, (*NOT_A_NUMBER, float("nan"))),
    "frequency_penalty": (0.5, (*NOT_A_NUMBER, float("inf"))),
    "typical_p": (0.5, (*NOT_A_NUMBER, 0, 2, float("nan"))),
    "top_n_sigma": (2.0, (*NOT_A_NUMBER, -1, float("nan"))),
    "xtc_probability": (0.5, (*NOT_A_NUMBER, -1, 2, float("nan"))),
    "xtc_threshold": (0.1, (*NOT_A_NUMBER, -1, 0.6, float("nan"))),
    "dry_multiplier": (0.5, (*NOT_A_NUMBER, -1, float("nan"))),
    "dry_base": (1.5, (*NOT_A_NUMBER, 0.5, float("nan"))),
    "dry_allowed_length": (2, (*NOT_A_COUNT, 0)),
    "dry_window": (9, NOT_A_COUNT),
    "logit_bias": ({1: 0.5}, (3, "x", [1], Thing(), {1: "x"}, {-1: 1.0}, {1.5: 1.0}, {1: float("nan")})),
}


def sampling() -> Iterator[tuple[str, Case]]:
    breakers = {"dry_breakers": ([[1]], (3, "x", None, Thing(), [["a"]], [[-1]], [[]], [None]))}
    window = {"repetition_window": (3, NOT_A_COUNT)}
    yield "Sampler", (pyturbo.Sampler, SAMPLING | window | breakers)
    sampler = pyturbo.Sampler()
    logits = np.ones(4, np.float32)
    wrong = (*NOT_AN_ARRAY, np.ones((2, 2), np.float32), np.ones(3), np.ones(0, np.float32))
    mask = (
        np.ones(1, np.uint32),
        but((*NOT_AN_ARRAY, np.ones(2, np.uint32), np.ones(1), np.ones(4, bool)), None),
    )
    yield "Sampler.sample", (sampler.sample, {"logits": (logits, wrong), "allowed": mask})
    yield "Sampler.accept", (sampler.accept, {"tokens": ([1], NOT_TOKENS)})


def texts(folder: Path) -> Iterator[tuple[str, Case]]:
    with open_checkpoint(folder) as checkpoint:
        source = checkpoint.tokenizer
    tokenizer = pyturbo.Tokenizer(source)
    yield "Tokenizer", (pyturbo.Tokenizer, {"source": (source, (*NOT_TEXT, "model"))})
    arguments: dict[str, tuple[Any, ...]]
    arguments = {"text": ("a", (*NOT_TEXT, b"x")), "special": (True, NOT_A_FLAG)}
    yield "Tokenizer.encode", (tokenizer.encode, arguments)
    yield "Tokenizer.decode", (tokenizer.decode, {"ids": ([1], NOT_IDS), "skip_special": (True, NOT_A_FLAG)})
    yield "Tokenizer.decode_chat", (tokenizer.decode_chat, {"ids": ([1], NOT_IDS)})
    yield "Tokenizer.piece", (tokenizer.piece, {"id": (1, (Thing(), ["a"], "x", 1.5, None))})
    arguments = {"skip_special": (True, NOT_A_FLAG), "continues": (True, NOT_A_FLAG)}
    yield "Tokenizer.detokenizer", (tokenizer.detokenizer, arguments)
    yield "Detokenizer.add", (tokenizer.detokenizer().add, {"token": (1, (Thing(), ["a"], "x", 1.5, None))})
    message = {"role": "user", "content": "a"}
    chats = (Thing(), ["a", "b"], "text", 3, None, [1], {}, message, [{"role": "user", "content": 3}], [None])
    arguments = {"messages": ([message], chats), "generate": (True, NOT_A_FLAG)}
    yield "Tokenizer.chat", (tokenizer.chat, arguments)
    schemas = (Thing(), 3, ["a"], b"x", "x", {"type": 3}, {"enum": 3})
    yield "Tokenizer.constraint", (tokenizer.constraint, {"schema": ({}, schemas)})
    yield "Tokenizer.constraint", (tokenizer.constraint, {"regex": ("a", (Thing(), 3, ["a"], b"x", "["))})
    arguments = {
        "grammar": ("start: /a/", (Thing(), 3, ["a"], b"x", "x")),
        "vocab": (500, but(NOT_A_COUNT, None)),
        "chat": (None, (Thing(), 3, ["a"], b"x")),
    }
    yield "Tokenizer.constraint", (tokenizer.constraint, arguments)
    yield "Tokenizer.breakers", (tokenizer.breakers, {"texts": (["a"], (3, Thing(), [3], [""], None))})
    yield "Tokenizer.encode_inside", (tokenizer.encode_inside, {"text": ("a", NOT_TEXT)})
    yield "Tokenizer.token", (tokenizer.token, {"text": ("a", (*NOT_TEXT, b"x", "", "two words"))})


#: Options of `Model.stream`: None takes the model's own.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "max_tokens": (2, NOT_A_COUNT),
    **{name: (valid, but(wrong, None)) for name, (valid, wrong) in SAMPLING.items()},
    "stop": ("x", (Thing(), 3, [3], [None], {"a": 1}, b"x")),
    "min_tokens": (1, (*NOT_A_COUNT, 10**9)),
    "ignore_eos": (True, NOT_A_FLAG),
    "reasoning_budget": (1, but(NOT_A_COUNT, None, 0)),
    "dry_breakers": (["a"], (Thing(), 3, "x", [3], [None], {"a": 1}, b"x")),
    "regex": ("ab?", (Thing(), 3, ["a"], b"x", "[", {})),
    "logprobs": (1, NOT_A_COUNT),
    "stats": (None, (Thing(), "x", 3)),
}


def models(folder: Path) -> Iterator[tuple[str, Case]]:
    arguments: dict[str, tuple[Any, ...]]
    arguments = {
        "path_or_id": (folder, (3, Thing(), ["model"], {}, "")),
        "device": ("cpu", (*NOT_A_DEVICE, "typo")),
        "kv": ("f16", NOT_A_NAME),
        "threads": (1, but(NOT_A_COUNT, None)),
        "precision": ("fast", but(NOT_A_NAME, None)),
        "progress": (None, (Thing(), "x", 3)),
    }
    yield "load", (pyturbo.load, arguments)
    model = pyturbo.load(folder, "cpu")
    message = {"role": "user", "content": "a"}
    not_a_message = ({"role": "user"}, {"x": 1}, {"role": "user", "content": 3})
    prompts = (
        *(Thing(), None, 3, {}, b"x", "", [], ["a", "b"], ["a", message], [message, "a"], message),
        *([1.5], [-1], [[1]], [None], [10**9], np.ones(2), np.array(["a"])),
        *([each] for each in not_a_message),
    )
    prompt = {"prompt": ("a", prompts, "messages")}
    session = {"session": (None, (Thing(), "x", 3))}
    not_tools = (
        Thing(),
        "x",
        3,
        {},
        [3],
        [{}],
        [{"name": ""}],
        [{"function": {"name": "f", "parameters": 3}}],
    )
    not_variables = (Thing(), "x", 3, [], {1: 2}, {"generate": True}, {"tools": []})
    template = {"tools": (None, not_tools), "variables": (None, not_variables)}
    yield "Model.generate", (model.generate, {**prompt, **OPTIONS, **session, **template})
    yield "Model.stream", (model.stream, {**prompt, **OPTIONS, **session, **template})
    yield "Model.prompt_text", (model.prompt_text, {"prompt": ("a", ([{}],), "messages"), **template})
    yield "Model.prompt_ids", (model.prompt_ids, {**prompt, **session})
    yield "Model.session", (model.session, {"context": (64, (*but(NOT_A_COUNT, None), 0, 10**9))})
    saved = folder.parent / "a.session"
    model.session(64).save(saved)
    arguments = {"path": (saved, NOT_A_PATH), "context": (64, but(NOT_A_COUNT, None))}
    yield "Model.load_session", (model.load_session, arguments)
    yield "Model.logits", (model.logits, {"token_ids": ([1], (*NOT_TOKENS, [], [10**9]))})
    texts = (Thing(), None, 3, {}, b"x", "", [], [[]], [1.5], [None], [-1], [10**9], ["a", 3])
    embedded = {"texts": ("a", texts), "pooling": ("last", NOT_A_NAME), "piece": (2, but(NOT_A_COUNT, None))}
    yield "Model.embed", (model.embed, embedded)
    yield "Model.layer_outputs", (model.layer_outputs, {"token_ids": ([1], (*NOT_TOKENS, [], [10**9]))})


def sessions(folder: Path) -> Iterator[tuple[str, Case]]:
    session = pyturbo.load(folder, "cpu").session(64)
    session.prefill([1, 2, 3])
    tokens = (*NOT_TOKENS, [], [10**9])
    yield "Session.prefill", (lambda **given: session.fork().prefill(**given), {"token_ids": ([1], tokens)})
    yield "Session.read", (lambda **given: list(session.fork().read(**given)), {"token_ids": ([1], tokens)})
    token = (Thing(), ["a"], {}, "x", 1.5, -1, None, 10**9, [1, 2])
    yield "Session.step", (lambda **given: session.fork().step(**given), {"token_id": (1, token)})
    yield "Session.rewind", (lambda **given: session.fork().rewind(**given), {"position": (1, NOT_A_COUNT)})
    yield "Session.grow", (lambda **given: session.fork().grow(**given), {"context": (80, NOT_A_COUNT)})
    yield "Session.save", (session.save, {"path": (folder.parent / "b.session", NOT_A_PATH)})


def conversations(folder: Path) -> Iterator[tuple[str, Case]]:
    model = pyturbo.load(folder, "cpu")
    arguments: dict[str, tuple[Any, ...]]
    arguments = {
        "model": (model, (folder, None, 3)),
        "context": (64, but(NOT_A_COUNT, None)),
        "system": ("a", but(NOT_TEXT, None)),
        "tools": (None, (Thing(), "x", 3, [3], [{"name": ""}])),
    }
    yield "Conversation", (pyturbo.Conversation, arguments)
    conversation = pyturbo.Conversation(model, 128)
    text = {"text": ("a", (*NOT_TEXT, ["a", "b"], [1], b"x"))}
    yield "Conversation.reply", (lambda **given: list(conversation.fork().reply(**given)), text | OPTIONS)
    saved = folder.parent / "c.session"
    yield "Conversation.save", (conversation.save, {"path": (saved, NOT_A_PATH)})
    arguments = {
        "model": (model, (folder, None, 3)),
        "path": (saved, NOT_A_PATH),
        "context": (128, but(NOT_A_COUNT, None)),
    }
    yield "Conversation.load", (pyturbo.Conversation.load, arguments)


def conversions(folder: Path) -> Iterator[tuple[str, Case]]:
    source, target = write_hf(MODELS["qwen3"], folder.parent / "hf"), folder.parent / "converted"
    arguments: dict[str, tuple[Any, ...]] = {
        "source": (source, NOT_A_PATH),
        "target": (target, NOT_A_PATH),
        "bits": (4, (Thing(), "4", 1.5, 7, -1)),
        "group_size": (32, (Thing(), "x", 7)),
        "dtype": ("f16", (Thing(), "float17", 3, ["a"])),
        "mode": ("affine", NOT_A_NAME),
        "force": (True, NOT_A_FLAG),
        "shard_bytes": (10**6, NOT_A_COUNT),
        "progress": (None, (Thing(), "x", 3)),
    }
    yield "convert", (convert, arguments)
    source, target = write_hf(MODELS["mixtral"], folder.parent / "moe"), folder.parent / "packed"
    arguments = {
        "source": (source, NOT_A_PATH),
        "target": (target, NOT_A_PATH),
        "expert_bits": (3, (Thing(), "3", 3.0, 4, -1, True)),
        "force": (True, NOT_A_FLAG),
        "check": (False, NOT_A_FLAG),
        "progress": (None, (Thing(), "x", 3)),
    }
    yield "pack", (pack, arguments)
    arguments = {
        "path": (target, NOT_A_PATH),
        "source": (source, but(NOT_A_PATH, None)),
        "progress": (None, (Thing(), "x", 3)),
    }
    yield "pack.verify", (verify, arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("careless") / "model")


def check(cases: Iterator[tuple[str, Case]], open_ended: tuple[str, ...] = ()) -> None:
    """`open_ended` functions take any keyword, by design."""
    found = []
    for name, (function, arguments) in cases:
        valid = {key: value for key, (value, *_) in arguments.items()}
        function(**valid)
        of_function = [] if name in open_ended else unknown_keyword(function, valid)
        for key, (_, wrong, *aliases) in arguments.items():
            of_function += complaints(function, valid, key, wrong, *aliases)
        found += [f"{name}: {each}" for each in of_function]
    assert not found, "\n".join(found)


def test_devices() -> None:
    check(devices())


def test_programs() -> None:
    check(programs())


def test_sampling() -> None:
    check(sampling())


def test_texts(folder: Path) -> None:
    check(texts(folder), open_ended=("Tokenizer.chat",))


def test_models(folder: Path) -> None:
    check(models(folder))


def test_sessions(folder: Path) -> None:
    check(sessions(folder))


def test_conversations(folder: Path) -> None:
    check(conversations(folder))


def test_conversions(folder: Path) -> None:
    check(conversions(folder))
