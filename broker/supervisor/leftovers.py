"""What brokers of this user left that were killed with all their processes: each start removes it.

What     : the regions, and below the directory for run directories (ipc.rundir) the run directory, of a broker whose
           run note (ipc.run_note) is of this boot. Brokers with an `odradek.run.dir` elsewhere are not found: only
           their own next start removes what they left.
Dead     : no process holds a byte of the broker's `roles.lock`, and the note's incarnation is that of the region. A pid
           says nothing, and a process in another pid namespace is as alive as others; the kernel's locks know them all.
Lock     : byte SWEEP of that `roles.lock`, then all bytes of roles, only if no process holds one (`seal`). They are
           only tried. /dev/shm's own lock is held for each single region (ipc.region_files).
Never    : a directory or a region of another user; a file without a note (systemd's memory outlives processes, and
           former versions write none); a note of another boot (another machine on a shared disk, or before a reboot);
           a copy of a file, which has the note of a living broker without its locks; a region of another incarnation.
           Brokers of another mount namespace that share /dev/shm have run directories
           that are not seen from here; if one has the same data path, and so the same key, the incarnation differs.

Interleavings, of a removal with

- a living broker: its bytes are looked at first, without taking any, so it never meets a lock of ours.
- a broker that starts in that run directory. It has its byte first: the seal fails, nothing is touched. The seal is
  first: the start waits (`boot._own`) until the lock is free, and finds the file not `current` any more, or the
  directory gone, and makes new ones. It creates regions only with its byte in a current file, so after ours are gone.
  Between the removal of the file and that of the directory it creates its own file: the directory is not empty, and
  stays. Files of the run directory are removed before the lock file, so never those of a new owner.
- a broker that starts with the same log directory and another run directory: incarnations differ, and the lock of
  /dev/shm keeps the look at the header and the unlink together.
- a broker that stops: its supervisor has its byte until all is removed.
- children of a killed supervisor: each has its byte until its end, and a child that has none yet dies with its parent.
- another removal: the second finds SWEEP taken and goes on with the next directory.
- commands: they open only a `roles.lock` that exists; regions that one has mapped stay mapped.

Crash rule: a death frees the locks. Regions go first, then the files of the run directory, the lock file with the note
           last, so that the next removal goes on where this one ended. Between the last two an empty directory stays,
           as after a start that died before its note: it takes no memory, and the next start there uses it.
A removal that is stopped by a signal delays only a start in the run directory that it has sealed.

`zookeeper-session` stays for an hour after the rest, and the lock file with it: with it the next start ends the former
session at once. ZooKeeper ends it within seconds or minutes.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from odradek.broker.process.process import ROLE_LOCK
from odradek.broker.supervisor import run_files
from odradek.ipc import region_files, roles, run_note, rundir
from odradek.ipc.locks import SWEEP, RoleLocks
from odradek.ipc.region_files import RegionFile
from odradek.ipc.run_note import RunNote
from odradek.storage.dirs import boot_id

log = logging.getLogger(__name__)

SESSION_KEPT_S = 3600
_ROLES = range(roles.ROLES)


class Found(NamedTuple):
    """A run directory as it is found. `private`: only this user can change it; `held`: a process has a byte; `file`:
    RoleLocks.file."""

    private: bool
    held: bool
    note: RunNote | None
    file: str
    boot: str
    uid: int
    regions: Sequence[RegionFile]


class Plan(NamedTuple):
    """What may be removed: regions, and whether the run directory."""

    regions: list[RegionFile]
    directory: bool


NOTHING = Plan([], False)


def plan(found: Found) -> Plan:
    """The decision, see above. The run directory stays while a region of its key does."""
    note = found.note
    if not found.private or found.held or note is None or not found.boot:
        return NOTHING
    if (note.boot, note.file) != (found.boot, found.file):
        return NOTHING
    named = [one for one in found.regions if one.key == note.key]
    dead = [one for one in named if one.uid == found.uid and 0 < one.incarnation == note.incarnation]
    return Plan(dead, len(dead) == len(named))


def removable(run_dir: Path, locks: RoleLocks, regions: Sequence[RegionFile]) -> Plan:
    """What the next start removes here, as far as can be told without a lock."""
    held = locks.anyone(_ROLES)
    note = run_note.decode(locks.note())
    return plan(Found(_private(run_dir), held, note, locks.file(), boot_id.boot_id(), os.getuid(), regions))


def sweep(own: Path | None = None) -> None:
    """Remove what dead brokers of this user left, except in the run directory `own`. Raises nothing: a start goes on.

    A directory that cannot be read, or that another process removes meanwhile, is left to the next start."""
    for base in {rundir.default_base()} if own is None else {rundir.default_base(), own.parent}:
        for folder in rundir.keyed(base) if _private(base) else ():
            if folder != own and _private(folder):
                with suppress(OSError):
                    _sweep_one(folder)


def _private(path: Path) -> bool:
    """Whether it is a directory, no link, that only this user can change."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _sweep_one(run_dir: Path) -> None:
    """Raises OSError where there is no lock file, or it has just been removed."""
    with _sealed(run_dir) as locks:
        if locks is not None:
            _remove(run_dir, locks)


@contextmanager
def _sealed(run_dir: Path) -> Iterator[RoleLocks | None]:
    """The lock file of a dead broker, with all its bytes held; None of one that may live."""
    locks = RoleLocks(run_dir / ROLE_LOCK, create=False)
    try:
        candidate = run_note.decode(locks.note()) is not None and not locks.anyone(range(SWEEP + 1))
        yield locks if candidate and locks.try_lock(SWEEP) and locks.seal(_ROLES) and locks.current() else None
    finally:
        locks.close()


def _remove(run_dir: Path, locks: RoleLocks) -> None:
    """Caller has sealed the locks, under which the note does not change any more."""
    note = run_note.decode(locks.note())
    if note is None:
        return
    regions = region_files.found(note.key)
    what = plan(Found(_private(run_dir), False, note, locks.file(), boot_id.boot_id(), os.getuid(), regions))
    removed = [one for one in what.regions if region_files.remove(one)]
    gone = what.directory and len(removed) == len(what.regions) and _remove_directory(run_dir, locks)
    if removed or gone:
        size = sum(one.size for one in removed) / (1 << 20)
        log.info("removed what a dead broker left: %s, %d regions, %.1f MiB", note.data_dir, len(removed), size)


def _remove_directory(run_dir: Path, locks: RoleLocks) -> bool:
    age = time.time() - run_dir.stat().st_mtime  # of the last file that was created or removed
    if run_files.clear(run_dir):
        age = 0.0
    left = {path.name for path in run_dir.iterdir()} - {ROLE_LOCK}
    if left == {rundir.SESSION_FILE} and age > SESSION_KEPT_S:
        (run_dir / rundir.SESSION_FILE).unlink()
        left = set()
    if not left:
        run_files.remove(run_dir, locks)
    return not left
