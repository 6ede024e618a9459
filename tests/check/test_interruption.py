"""Ctrl-C ends a check, also where something swallowed it."""

import contextlib
import os
import signal
import threading

import pytest

from oneop.cli.check import _Interruption


def test_it_is_raised_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with _Interruption() as interruption:
        interruption.raise_again()  # nothing came
        with contextlib.suppress(KeyboardInterrupt):  # as a callback of the garbage collector does
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 1)  # the handler runs between two of Python's instructions
        elsewhere = threading.Thread(target=interruption.raise_again)
        elsewhere.start()
        elsewhere.join()
        with pytest.raises(KeyboardInterrupt):
            interruption.raise_again()
    assert signal.getsignal(signal.SIGINT) is before
