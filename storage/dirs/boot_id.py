"""Whether the machine has restarted since a log directory was last in use: `odradek-boot`.

Layout    : the kernel's boot id, one line, in each log directory.
Owner     : the broker that has the log directory.
Writer    : the janitor, once every partition has been recovered, or found damaged.
Lock      : none.
Crash rule: replaced atomically and synced; an outdated file makes a recovery more lenient.

A killed process leaves all its writes in the page cache, so damage found then has another cause. A machine that went
down leaves any subset of unsynced pages of any files, in no order: that is not damage.
"""

from __future__ import annotations

from pathlib import Path

from odradek.storage.files.durable import FILES, Files, StrPath, replace

FILE_NAME = "odradek-boot"
_KERNEL = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """The kernel's id of the current boot; empty if it cannot be read."""
    return _read(_KERNEL)


def restarted_since(log_dir: StrPath) -> bool:
    """Whether the note in `log_dir` is from another boot; False when there is no note."""
    noted, now = _read(Path(log_dir, FILE_NAME)), boot_id()
    return bool(noted and now and noted != now)


def record_boot(log_dir: StrPath, *, files: Files = FILES) -> None:
    """Note the current boot. OSError from the disk."""
    now, path = boot_id(), Path(log_dir, FILE_NAME)
    if now and _read(path) != now:
        replace(path, f"{now}\n".encode(), files=files)


def _read(path: StrPath) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
