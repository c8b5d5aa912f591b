"""A debugger that holds a process and does not reap it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .process import die_with_parent

_SEIZE = """
import ctypes, sys, time
PTRACE_SEIZE = 0x4206
print(ctypes.CDLL(None).ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None), flush=True)
time.sleep(1000)
"""


@contextmanager
def traced(pid: int) -> Iterator[None]:
    """Within the block, the parent of process `pid` cannot wait for its end, because the tracer must do so first."""
    words = [sys.executable, "-c", _SEIZE, str(pid)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=die_with_parent) as tracer:
        assert tracer.stdout is not None
        try:
            if tracer.stdout.readline() != b"0\n":
                pytest.skip("ptrace is not allowed here")
            yield
        finally:
            tracer.kill()
