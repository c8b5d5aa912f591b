"""membarrier(2), which Python has no call for: see ipc.memory_order. Not imported on x86, but by tests."""

from __future__ import annotations

import ctypes
import os
import platform

_NUMBERS = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "loongarch64": 283, "ppc64le": 365, "s390x": 356}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 1 << 1, 1 << 2

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_number = ctypes.c_long(_NUMBERS.get(platform.machine(), -1))


class NoBarrier(OSError):
    """The kernel has no membarrier(2), without which a machine that is not x86 cannot publish; Linux 4.16 has it."""


def _call(command: int) -> None:
    if _syscall(_number, ctypes.c_int(command), ctypes.c_uint(0), ctypes.c_int(0)):
        number = ctypes.get_errno()
        raise NoBarrier(number, f"membarrier: {os.strerror(number)}")


def register() -> None:
    """Have the threads of this process execute the barriers of others."""
    _call(_REGISTER_GLOBAL_EXPEDITED)


def barrier() -> None:
    """A full barrier in this thread and in each that runs of any registered process."""
    _call(_GLOBAL_EXPEDITED)
