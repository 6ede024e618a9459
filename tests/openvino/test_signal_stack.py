"""Models that come and go leave the thread's stack for signals as it was.

OpenVINO's own ``Core`` does not (2026.4): with ``openvino.Core()`` in the place of ``oneop.openvino.core([])``, the
first program below ends by SIGSEGV.
"""

import subprocess
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("OpenVINO sets a stack for signals on Linux only", allow_module_level=True)

CYCLES = """
import faulthandler, gc, os, signal
faulthandler.enable()  # which sets a stack for signals, as pytest does

import numpy as np
import openvino
from openvino import opset13
import oneop
from oneop.targets.openvino.signal_stack import current

def compiled():
    core = oneop.openvino.core([])
    x = opset13.parameter([4], np.float32)
    return core, core.compile_model(openvino.Model([opset13.add(x, x)], [x]), "CPU")

before = current().pointer
assert before
kept = [compiled() for _ in range(3)]
while kept:
    kept.pop(0)  # in the order in which they began
    gc.collect()
assert current().pointer == before, (current().pointer, before)
handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
os.kill(os.getpid(), signal.SIGUSR1)
assert handled
print("fine")
"""

FROM_ANOTHER_THREAD = """
import signal, threading

import oneop
from oneop.targets.openvino.signal_stack import current

made = []
seen = []

def work():
    before = current().pointer
    made.append(oneop.openvino.core([]))
    seen.append((before, current().pointer))

thread = threading.Thread(target=work)
thread.start()
thread.join()
made.clear()
assert seen[0][0] == seen[0][1], seen
print("fine")
"""

WITHOUT_ROOM = """
import gc
import oneop
from oneop.targets.openvino import signal_stack

taken = []
real = signal_stack._set

def refusing(stack):  # as Linux does with a stack that is too small for AMX
    taken.append(stack.size)
    return real(stack) if stack.size == signal_stack.SIZE else False

signal_stack._set = refusing
first = oneop.openvino.core([])
own = signal_stack.current()
assert own.size == signal_stack.SIZE, own.size
del first
gc.collect()
assert signal_stack.current().pointer == own.pointer
print("fine")
"""


@pytest.mark.parametrize("program", [CYCLES, FROM_ANOTHER_THREAD, WITHOUT_ROOM], ids=["cycles", "thread", "no room"])
def test_the_stack_for_signals_stays(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
