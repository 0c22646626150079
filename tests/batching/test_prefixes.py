"""Conversations of an engine that begin alike: what one has read, the others need not read."""

from __future__ import annotations

import pyturbo

STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the"
ENDS = (" sun", " park with", " garden and", " rain. One day")


def test_replies_are_the_same_and_beginnings_are_read_once() -> None:
    model, plain = pyturbo.load(threads=2, kv="f32", prefix_cache="100MB"), pyturbo.load(threads=2, kv="f32")
    want = [plain.generate(STORY + end, 6) for end in ENDS]
    with pyturbo.Engine(model, slots=4) as engine:
        for known in (False, True):
            streams = [engine.submit(STORY + end, max_tokens=6) for end in ENDS]
            got = [stream.result() for stream in streams]
            assert [reply.tokens for reply in got] == [reply.tokens for reply in want]
            if known:
                assert [reply.stats.prompt_tokens for reply in got] == [0, 0, 0, 0]
    store = model.prefix_store
    assert store is not None
    assert 0 < store.nbytes <= store.max_bytes
