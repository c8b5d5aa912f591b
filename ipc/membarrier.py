"""membarrier(2), for which Python has no call: see ipc.memory_order. On x86 only tests import it."""

from __future__ import annotations

import ctypes
import os
import platform

_NUMBERS = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "loongarch64": 283, "ppc64le": 365, "s390x": 356}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 1 << 1, 1 << 2

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_number = ctypes.c_long(_NUMBERS.get(platform.machine(), -1))


class NoBarrier(OSError):
    """The kernel lacks membarrier(2), which publishing needs on machines other than x86; Linux 4.16 has it."""


def _call(command: int) -> None:
    if _syscall(_number, ctypes.c_int(command), ctypes.c_uint(0), ctypes.c_int(0)):
        number = ctypes.get_errno()
        raise NoBarrier(number, f"membarrier: {os.strerror(number)}")


def register() -> None:
    """Register this process: its threads execute the barriers of other processes."""
    _call(_REGISTER_GLOBAL_EXPEDITED)


def barrier() -> None:
    """A full barrier in this thread and in each running thread of any registered process."""
    _call(_GLOBAL_EXPEDITED)
