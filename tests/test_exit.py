"""Processes end with status 0 and without a word, whatever still runs or lies about in them.

A race that needs another machine's timing is not caught; the checks of the heap make damage loud.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import pyturbo
from processes import require_clean, run_script

pytestmark = pytest.mark.slow

START = """
import atexit, os, sys, threading
late = []
atexit.register(lambda: [use() for use in late])  # after what the package registers
import numpy as np
import pyturbo

def forever(model, begun):
    session = model.session(context=512)
    while True:
        for _ in model.stream("Once upon a time", max_tokens=400, session=session):
            begun.set()
        session = model.session(context=512)

def generate_in_background(model):
    begun = threading.Event()
    threading.Thread(target=forever, args=(model, begun), daemon=True).start()
    begun.wait()
"""

ENDINGS = {
    "nothing is used": "",
    "a device in a global": "device = pyturbo.Device('cpu')\ndevice.empty(3)",
    "a model in a global": "model = pyturbo.load()\nmodel.generate('Once', max_tokens=2)",
    "a daemon thread generates": "generate_in_background(pyturbo.load())",
    "two daemon threads and one model": """
model = pyturbo.load()
generate_in_background(model)
generate_in_background(model)
""",
    "two devices at work": """
for threads in (2, 3):
    generate_in_background(pyturbo.load(device=pyturbo.Device("cpu", threads=threads)))
""",
    "reference kernels at work": "generate_in_background(pyturbo.load(device='cpu:reference'))",
    "a daemon thread loads": """
begun = threading.Event()
def loading():
    while True:
        model = pyturbo.load()
        begun.set()
threading.Thread(target=loading, daemon=True).start()
begun.wait()
""",
    "a daemon thread launches kernels": """
device = pyturbo.Device("cpu")
x, y, begun = device.buffer(np.ones(1 << 16, "float32")), device.empty(1 << 16), threading.Event()
def launching():
    while True:
        device.kernel("add")(x, x, y, 1 << 16)
        begun.set()
threading.Thread(target=launching, daemon=True).start()
begun.wait()
""",
    "a daemon thread uses operations": """
begun = threading.Event()
def adding():
    while True:
        pyturbo.ops.add([1.0], [2.0])
        begun.set()
threading.Thread(target=adding, daemon=True).start()
begun.wait()
""",
    "a reply left half way": """
stream = pyturbo.load().stream("Once upon a time", max_tokens=50)
next(stream)
""",
    "a prompt left half way": """
model = pyturbo.load()
reading = model.session().read([5] * 1000)
next(reading)
""",
    "a cycle": """
class Holder: pass
holder = Holder()
holder.self, holder.model = holder, pyturbo.load()
holder.stream = holder.model.stream("Once")
next(holder.stream)
del holder
""",
    "exit inside a generator": """
def replies():
    for chunk in pyturbo.load().stream("Once upon a time"):
        yield chunk
        sys.exit()
for chunk in replies():
    pass
""",
    "exit while a daemon thread generates": "generate_in_background(pyturbo.load())\nsys.exit(0)",
    "a view outlives its buffer": """
view = pyturbo.Device("cpu").empty((3, 5)).numpy()
state = pyturbo.load().session(context=64).state
""",
    "an array that a device wraps": """
device = pyturbo.Device("cpu")
buffers = [device.buffer(np.ones(5, "float32")) for _ in range(3)]
buffers.append(buffers)
""",
    "a device that is closed": "with pyturbo.Device('cpu') as device:\n    device.empty(3)",
    "a device closed while it is at work": """
model = pyturbo.load()
threading.excepthook = lambda failed: None
generate_in_background(model)
model.device.close()
try:
    model.generate("Once")
except pyturbo.errors.StateError as error:
    assert "closed" in str(error)
else:
    raise SystemExit("expected an error")
""",
    "late use": """
def use(*ways):
    for way in ways:
        try:
            way()
        except pyturbo.errors.StateError:
            continue
        print("expected an error")
model = pyturbo.load()
session = model.session(context=64)
generate_in_background(model)
late.append(lambda: use(model.session, lambda: session.step(1), lambda: pyturbo.Device("cpu")))
late.append(lambda: print("late"))
""",
    "a child that ends normally": """
model = pyturbo.load()
stream = model.stream("Once upon a time")
next(stream)
generate_in_background(model)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
""",
    "a child that generates and ends normally": """
parent = pyturbo.load()
generate_in_background(parent)
child = os.fork()
if child == 0:
    model = pyturbo.load()
    generate_in_background(model)
else:
    assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_ends_in_order(tmp_path: Path, ending: str) -> None:
    done = run_script(START + ENDINGS[ending], tmp_path)
    require_clean(done)
    assert done.stdout == ("late\n" if ending == "late use" else "")


@pytest.mark.skipif("metal" not in pyturbo.devices(), reason="soft Metal is not built")
@pytest.mark.parametrize(
    "ending",
    ["a device in a global", "a daemon thread launches kernels", "a view outlives its buffer"],
)
def test_metal_ends_in_order(tmp_path: Path, ending: str) -> None:
    start = START + "from pyturbo import _soft_metal_tests\n"
    script = ENDINGS[ending].replace("'cpu'", "'metal'").replace('"cpu"', "'metal'")
    require_clean(run_script(start + script.replace("load()", "load(device='metal')"), tmp_path))
