"""Gives a forked process its own command line in `ps` instead of its parent's.

`pgrep -f server-1.properties` must find only the supervisor, so that killing what it finds kills the broker once.
The title overwrites the arguments that exec put at the top of the stack; a last byte that is not zero tells the kernel
that this is one string now (setproctitle(3), fs/proc/base.c). Text that does not fit is left out.
"""

from __future__ import annotations

import ctypes
import os

_ARG_START, _ARG_END = 48 - 3, 49 - 3  # proc(5): fields of `stat`, counted from after the name
_PR_SET_NAME = 15
_COMMAND_LINE = "/proc/self/cmdline"
_MOST = 1 << 16
_prctl = ctypes.CDLL(None).prctl  # loaded once, and not in each fork


def set_title(title: str, rest: str = "") -> bool:
    """Show `title`, and `rest` after it if there is room; `top` shows the last word of `title`.

    False when the kernel shows something else, such as the command line of the parent."""
    fields = _content("/proc/self/stat").rpartition(b") ")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    room = end - start - 2
    shown = next((text for text in (f"{title} {rest}".strip().encode(), title.encode()) if len(text) <= room), b"")
    if not shown:
        return False
    ctypes.memmove(start, shown.ljust(room + 1, b"\0") + b"\n", room + 2)
    _prctl(_PR_SET_NAME, title.split()[-1].encode()[:15], 0, 0, 0)
    return _content(_COMMAND_LINE).rstrip(b"\0") == shown


def _content(path: str) -> bytes:
    """Of a file of the kernel, which a read returns whole. Each object that a fork touches is a page that it copies."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _MOST)
    finally:
        os.close(fd)
