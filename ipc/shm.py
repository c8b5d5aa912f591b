"""All fixed shared memory of one broker: the supervisor creates it, the other processes attach to it.

Layout    : region `control`: words 0 metadata version, 1 draining, 2 log-level version, 3 bound ports known,
            4 the broker has left the cluster, 5 security metadata version, words 8 to 15 one byte for each log
            directory, 1 when its disk has failed (`fail_dir`), words 16.. the process table (ipc.processes), then the
            throttles' counters (ipc.traffic).
            Regions `slots-<k>`: ipc.slots. `meta-<v>`, `security-<v>`: ipc.metadata. `producers-…`: ipc.producers.
            `quotas`: ipc.quotas. `latencies-<role>`: ipc.latencies. `counts-<role>-<k>`: ipc.partition_counts.
Owner     : the supervisor creates all at start, and unlinks all at stop.
Writers   : see each module; words 1 to 3 the supervisor, 4 and 5 the controller; a log directory's byte any process
            that met the failure. Words 1 and 4 and those bytes go from 0 to 1 and stay so until the next start.
Lock      : none; replacing a former run's regions requires that no role byte is held. ipc.region_files has the lock
            that keeps a removal of dead regions away from it.
Crash rule: the next start finds the regions of a killed broker by their prefix and replaces them; the start of another
            broker removes them (broker.supervisor.leftovers).
"""

from __future__ import annotations

from odradek.ipc import region, region_files
from odradek.ipc.metadata import MetadataRegion
from odradek.ipc.processes import TABLE_WORDS, ProcessTable
from odradek.ipc.region import Region
from odradek.ipc.slots import SlotTable
from odradek.ipc.traffic import WORDS as TRAFFIC_WORDS
from odradek.ipc.traffic import Traffic

_KIND = "control"
META_VERSION, DRAINING, LOG_VERSION, LEFT, SECURITY_VERSION = 0, 1, 2, 4, 5
_FAILED = slice(8 * 8, 16 * 8)  # bytes
_TABLE = 16
_TRAFFIC = _TABLE + TABLE_WORDS
CONTROL_SIZE = (_TRAFFIC + TRAFFIC_WORDS) * 8  # bytes


class Shared:
    """This process's mapping of the broker's shared memory."""

    def __init__(self, prefix: str, control: Region) -> None:
        self.prefix = prefix
        self.incarnation = control.incarnation
        self.control = control
        self.processes = ProcessTable(control.words, _TABLE)
        self.traffic = Traffic(control.words, _TRAFFIC)
        self.slots = SlotTable(prefix, control.incarnation)
        self.metadata = MetadataRegion(prefix, control.incarnation, control.words, META_VERSION)
        self.security = MetadataRegion(prefix, control.incarnation, control.words, SECURITY_VERSION, "security")

    @classmethod
    def create(cls, prefix: str, incarnation: int, slots: int) -> Shared:
        """Replace the regions that a former run left under `prefix`. Caller ensures that no process of it lives."""
        with region_files.replacing():
            region.unlink_all(prefix)
            try:
                control = Region.create(f"{prefix}control", CONTROL_SIZE, _KIND, incarnation)
                shared = cls(prefix, control)
                shared.slots.create(slots)
            except BaseException:
                region.unlink_all(prefix)
                raise
        return shared

    @classmethod
    def attach(cls, prefix: str) -> Shared:
        """Map a running broker's memory; RegionError when no broker runs."""
        shared = cls(prefix, Region.attach(f"{prefix}control", _KIND))
        shared.slots.attach()
        return shared

    @property
    def draining(self) -> bool:
        """Whether the broker is stopping."""
        return bool(self.control.words[DRAINING])

    @property
    def left_cluster(self) -> bool:
        """Whether the controller process has finished its work in the cluster, so that the others may stop."""
        return bool(self.control.words[LEFT])

    def fail_dir(self, number: int) -> None:
        """Mark log directory `number` as failed for all processes."""
        self.control.buf[_FAILED][number] = 1

    def failed_dirs(self) -> list[int]:
        """The numbers of the failed log directories."""
        return [number for number, failed in enumerate(self.control.buf[_FAILED]) if failed]

    def destroy(self) -> list[str]:
        """Unlink every region of this broker; processes that still map them keep their view."""
        return region.unlink_all(self.prefix)
