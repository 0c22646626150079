"""A child of fork(), while another thread of the parent generates: nothing of the parent's hangs in it, and a
model that it loads itself works.

Metal, which no child of fork() can use, is in tests/metal/test_device.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import require_clean, run_script

pytestmark = pytest.mark.slow

START = """
import os, signal, sys, threading, time
import numpy as np
import pyturbo
from pyturbo.errors import StateError

device = pyturbo.Device("cpu", threads=2)
model = pyturbo.load(device=device)
tokens = model.tokenizer.encode("Once upon a time")
session = model.session(context=64)
session.prefill(tokens)
x = device.buffer(np.ones(64, "float32"))
kernel = device.kernel("add")
program = pyturbo.Program(device)
program.add(kernel, x, x, device.empty(64), 64)
expected = model.generate("Once upon a time", max_tokens=5).text

begun = threading.Event()
def background():
    while True:
        for _ in model.stream("Once upon a time", max_tokens=400):
            begun.set()
threading.Thread(target=background, daemon=True).start()
begun.wait()

def refused(use):
    try:
        use()
    except StateError as error:
        assert "made before fork(): load the model in the child process" in str(error), error
    else:
        raise AssertionError("expected an error")

def in_children(work, times):
    # One after the other, each at another moment of what the thread does.
    for i in range(times):
        time.sleep(0.003 * i)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            status = 1
            try:
                work()
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
"""

USES = """
def work():
    refused(model.session)
    refused(lambda: model.generate("Once"))
    refused(lambda: model.runner.scratch_bytes)
    refused(lambda: session.step(1))
    refused(session.fork)
    refused(lambda: device.kernel("add"))
    refused(lambda: device.empty(3))
    refused(lambda: kernel(x, x, x, 64))
    refused(program.run)
    refused(program.prepare)
    device.progress = print
    refused(program.begin_passes)
    assert device.closed
    device.synchronize()
    device.close()
in_children(work, 6)
"""

#: What is no more than data goes on; so do operations, on a device of the child.
DATA = """
os.environ["TOKENIZERS_PARALLELISM"] = "true"
long = "Once upon a time " * 2000
long_tokens = model.tokenizer.encode(long)  # with threads of the package, which a child does not have

def work():
    assert x.numpy().sum() == 64
    assert model.tokenizer.encode("Once upon a time") == tokens
    assert model.tokenizer.encode(long) == long_tokens
    assert pyturbo.Sampler(temperature=0.5, seed=1).sample(session.logits)[0] >= 0
    session.save("child.session")
    assert pyturbo.ops.add([1.0], x.numpy()[:1]) == 2
in_children(work, 6)
assert model.load_session("child.session").position == session.position
"""

#: A sampler that a thread of the parent uses, at most moments; the thread does not exist in the child.
SAMPLER = """
sampler = pyturbo.Sampler(temperature=1.0, top_p=0.9, seed=1)
logits = np.linspace(0, 1, 1_000_000, dtype="float32")
def draw():
    while True:
        sampler.sample(logits)
threading.Thread(target=draw, daemon=True).start()

def work():
    try:
        assert sampler.sample(logits[:9].copy())[0] < 9
    except StateError as error:
        assert "the sampler was in use by another thread when this process was forked" in str(error), error
in_children(work, 6)
"""

OWN_MODEL = """
def work():
    own = pyturbo.load()
    assert own.generate("Once upon a time", max_tokens=5).text == expected
    own.device.close()
in_children(work, 4)
"""

POOL = """
import multiprocessing

def generate(prompt):
    global own
    if "own" not in globals():
        own = pyturbo.load()
    return own.generate(prompt, max_tokens=5).text

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(generate, ["Once upon a time"] * 4) == [expected] * 4
"""


SCRIPTS = {"uses": USES, "data": DATA, "sampler": SAMPLER, "model": OWN_MODEL, "pool": POOL}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_child(tmp_path: Path, script: str) -> None:
    require_clean(run_script(START + script, tmp_path))
