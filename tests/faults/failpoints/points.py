"""The failpoints by name: the call, the process, the function around the call, and the file.

`phase` says what reaches a point: "load" the constant load; "boot" a start after a kill; "restart" a start after a
clean stop; "stop" a clean stop; "repair" the lock of a partition whose holder has just died; "respawn" the death of a
child; "retire" `odradek scale`.
"""

from __future__ import annotations

from typing import NamedTuple

WORKER, ACCEPTOR, COORDINATOR, CONTROLLER, JANITOR, SUPERVISOR, FORK_SERVER = (
    ("worker",), ("acceptor",), ("coordinator",), ("controller",), ("janitor",), ("supervisor",), ("fork-server",)
)  # fmt: skip
RECOVERS = ("worker", "janitor")
REPAIRS = ("worker", "janitor", "coordinator")  # the next holder of the lock
APPENDING, ROLLING, SWAPPING = 1, 2, 4  # values of `dirty` (storage.log.append, storage.log.roll, storage.log.swap)


class Point(NamedTuple):
    """A place where a process may end. `note` is `dirty` at a publish, the count of descriptors at a send."""

    name: str
    roles: tuple[str, ...]
    call: str
    when: str = "before"
    inside: str = ""
    path: str = ""
    note: int | None = None
    phase: str = "load"
    hit: int = 1


POINTS: tuple[Point, ...] = (
    # An append, in the order of its steps.
    Point("append.locked", WORKER, "lock", "after", path="*/partition.lock"),
    Point("append.before-write", WORKER, "pwritev"),
    Point("append.between-write-and-index", WORKER, "pwritev", "after"),
    Point("append.before-index", WORKER, "pwrite", path="*.index"),
    Point("append.after-index", WORKER, "pwrite", "after", path="*.index"),
    Point("append.before-time-index", WORKER, "pwrite", path="*.timeindex"),
    Point("append.after-time-index", WORKER, "pwrite", "after", path="*.timeindex"),
    Point("append.before-publish", WORKER, "publish", note=APPENDING),
    Point("append.after-publish", WORKER, "publish", "after", note=APPENDING),
    Point("append.before-producer", WORKER, "producer"),
    Point("append.after-producer", WORKER, "producer", "after"),
    Point("append.before-unlock", WORKER, "unlock", path="*/partition.lock"),
    Point("append.doorbell-owed", WORKER, "unlock", "after", path="*/partition.lock"),
    Point("append.before-ring", WORKER, "ring"),
    Point("append.after-ring", WORKER, "ring", "after"),
    Point("append.first-of-epoch", WORKER, "replace", path="*/leader-epoch-checkpoint"),
    Point("append.first-of-epoch-noted", WORKER, "replace", "after", path="*/leader-epoch-checkpoint"),
    Point("append.producer-table-made", WORKER, "region", "after", path="*-producers-*"),
    # fsync before the answer (flush.messages).
    Point("flush.before-fsync", WORKER, "fsync", path="*.log"),
    Point("flush.after-fsync", WORKER, "fsync", "after", path="*.log"),
    Point("flush.before-publish", WORKER, "publish", inside="storage.log.flush:publish"),
    # A roll, in the order of its steps.
    Point("roll.begun", WORKER, "pwrite", inside="storage.log.roll:seal_time_index"),
    Point("roll.before-snapshot", WORKER, "replace", inside="storage.log.roll:roll", path="*.snapshot"),
    Point("roll.after-snapshot", WORKER, "replace", "after", inside="storage.log.roll:roll", path="*.snapshot"),
    Point("roll.log-made", WORKER, "open", "after", inside="storage.log.roll:roll", path="*.log"),
    Point("roll.index-made", WORKER, "open", "after", inside="storage.log.roll:roll", path="*.index"),
    Point("roll.time-index-made", WORKER, "open", "after", inside="storage.log.roll:roll", path="*.timeindex"),
    Point("roll.before-publish", WORKER, "publish", inside="storage.log.roll:roll", note=ROLLING),
    Point("roll.after-publish", WORKER, "publish", "after", inside="storage.log.roll:roll", note=ROLLING),
    # A fetch, and the worker's part of a handoff.
    Point("fetch.before-sendfile", WORKER, "sendfile"),
    Point("fetch.after-sendfile", WORKER, "sendfile", "after"),
    Point("handoff.received", WORKER, "receive", "after", inside="workers.net.acceptor_channel:_ready"),
    Point("handoff.registering", WORKER, "send", path="R", phase="respawn"),
    Point("handoff.given-back", WORKER, "send", "after", path="B", phase="retire"),
    Point("worker.started", WORKER, "enter", "after", phase="respawn"),
    # The acceptor.
    Point("handoff.before-send", ACCEPTOR, "send", note=1),
    Point("handoff.after-send", ACCEPTOR, "send", "after", note=1),
    Point("acceptor.started", ACCEPTOR, "enter", "after", phase="respawn"),
    # The coordinator's appends and answers.
    Point("internal-topic.locked", COORDINATOR, "lock", "after", path="*/partition.lock"),
    Point("internal-topic.before-write", COORDINATOR, "pwritev"),
    Point("internal-topic.after-write", COORDINATOR, "pwritev", "after"),
    Point("internal-topic.before-publish", COORDINATOR, "publish", note=APPENDING),
    Point("internal-topic.doorbell-owed", COORDINATOR, "unlock", "after", path="*/partition.lock"),
    Point("internal-topic.before-answer", COORDINATOR, "send"),
    Point("internal-topic.after-answer", COORDINATOR, "send", "after"),
    Point("coordinator.started", COORDINATOR, "enter", "after", phase="respawn"),
    # A transaction's marker, and its row in the index of aborted ones.
    Point("marker.locked", COORDINATOR, "lock", "after", inside="storage.log.control_batch:write_marker"),
    Point("marker.row-written", COORDINATOR, "pwrite", "after", inside="storage.log.transactions:append_row"),
    Point("marker.before-write", COORDINATOR, "pwritev", inside="storage.log.control_batch:write_marker"),
    Point("marker.after-write", COORDINATOR, "pwritev", "after", inside="storage.log.control_batch:write_marker"),
    Point("marker.before-publish", COORDINATOR, "publish", inside="storage.log.control_batch:write_marker"),
    Point("marker.after-publish", COORDINATOR, "publish", "after", inside="storage.log.control_batch:write_marker"),
    Point("marker.doorbell-owed", COORDINATOR, "unlock", "after", inside="storage.log.control_batch:write_marker"),
    # The answer to a worker that asks whether a transaction has a partition.
    Point("verification.before-answer", COORDINATOR, "send", inside="broker.coordinator.coordinator:_verify"),
    # Metadata: the tree, directories, slots, the snapshot.
    Point("metadata.before-commit", CONTROLLER, "commit"),
    Point("metadata.after-commit", CONTROLLER, "commit", "after"),
    Point("metadata.directory-made", CONTROLLER, "mkdir", "after"),
    Point("metadata.topic-id-written", CONTROLLER, "replace", "after", path="*/partition.metadata"),
    Point("metadata.first-segment", CONTROLLER, "open", "after", path="*.log"),
    Point("metadata.before-slot", CONTROLLER, "publish", inside="broker.controller.replicas.slot_allocator:open"),
    Point("metadata.after-slot", CONTROLLER, "publish", "after",
          inside="broker.controller.replicas.slot_allocator:open"),
    Point("metadata.before-publish", CONTROLLER, "metadata"),
    Point("metadata.region-made", CONTROLLER, "region", "after", path="*-meta-*"),
    Point("metadata.after-publish", CONTROLLER, "metadata", "after"),
    Point("metadata.before-ring", CONTROLLER, "ring"),
    Point("metadata.before-answer", CONTROLLER, "send"),
    Point("metadata.slot-deleting", CONTROLLER, "publish", "after",
          inside="broker.controller.replicas.slot_allocator:mark_deleting"),
    Point("metadata.directory-retired", CONTROLLER, "rename", "after", path="*-delete"),
    Point("metadata.slot-freed", CONTROLLER, "publish", "after",
          inside="broker.controller.replicas.slot_allocator:free"),
    Point("controller.started", CONTROLLER, "enter", "after", phase="respawn"),
    # The janitor: flush, checkpoints, retention, removal, compaction.
    Point("janitor.before-fsync", JANITOR, "fsync", path="*.log"),
    Point("janitor.flushed", JANITOR, "publish", inside="storage.log.flush:publish"),
    Point("checkpoint.written", JANITOR, "pwrite", "after", path="*-checkpoint.tmp"),
    Point("checkpoint.recovery-point", JANITOR, "replace", path="*/recovery-point-offset-checkpoint"),
    Point("checkpoint.recovery-point-done", JANITOR, "replace", "after", path="*/recovery-point-offset-checkpoint"),
    Point("checkpoint.high-watermark", JANITOR, "replace", path="*/replication-offset-checkpoint"),
    Point("checkpoint.log-start", JANITOR, "replace", path="*/log-start-offset-checkpoint"),
    Point("checkpoint.cleaner", JANITOR, "replace", path="*/cleaner-offset-checkpoint"),
    Point("retention.before-start", JANITOR, "publish", inside="storage.log.trim:advance"),
    Point("retention.after-start", JANITOR, "publish", "after", inside="storage.log.trim:advance"),
    Point("retention.before-rename", JANITOR, "rename", inside="storage.log.trim:rename_below"),
    Point("retention.after-rename", JANITOR, "rename", "after", inside="storage.log.trim:rename_below"),
    Point("retention.before-unlink", JANITOR, "unlink", path="*.deleted"),
    Point("retention.after-unlink", JANITOR, "unlink", "after", path="*.deleted"),
    Point("removal.half", JANITOR, "unlink", "after", path="*-delete/*"),
    Point("compaction.cleaned", JANITOR, "open", "after", path="*.log.cleaned"),
    Point("swap.before", JANITOR, "rename", path="*.swap"),
    Point("swap.marked", JANITOR, "rename", "after", path="*.log.swap"),
    Point("swap.put-aside", JANITOR, "rename", "after", inside="storage.log.swap:put_in_place", path="*.deleted"),
    Point("swap.moved-in", JANITOR, "rename", "after", inside="storage.log.swap:put_in_place", path="*.log"),
    Point("swap.before-publish", JANITOR, "publish", note=SWAPPING),
    Point("swap.after-publish", JANITOR, "publish", "after", note=SWAPPING),
    Point("janitor.started", JANITOR, "enter", "after", phase="respawn"),
    # Repair after another process: the armed partner dies in an append or a roll.
    Point("repair.cut", REPAIRS, "truncate", "after", inside="storage.log.repair:repair", phase="repair"),
    Point("repair.before-publish", REPAIRS, "publish", inside="storage.log.repair:repair", phase="repair"),
    Point("repair.after-publish", REPAIRS, "publish", "after", inside="storage.log.repair:repair", phase="repair"),
    # A start after a kill.
    Point("start.before-mark", SUPERVISOR, "unlink", path="*/.kafka_cleanshutdown", phase="restart"),
    Point("start.memory-made", SUPERVISOR, "region", "after", path="*-control", phase="boot"),
    Point("start.before-spawn", SUPERVISOR, "spawn", phase="boot"),
    Point("start.counted", CONTROLLER, "commit", "after", inside="cluster.state:count_start", phase="boot"),
    Point("start.slots", CONTROLLER, "publish", "after", inside="broker.controller.replicas.slot_allocator:open",
          phase="boot"),
    Point("recovery.begun", RECOVERS, "lock", "after", inside="storage.log.opening:open_all", phase="boot"),
    Point("recovery.index", RECOVERS, "replace", inside="storage.recovery.recovery:recover", path="*.index",
          phase="boot"),
    Point("recovery.time-index", RECOVERS, "replace", "after", inside="storage.recovery.recovery:recover",
          path="*.timeindex", phase="boot"),
    Point("recovery.cut", RECOVERS, "ftruncate", "after", inside="storage.recovery.recovery:recover", phase="boot"),
    Point("recovery.producers", RECOVERS, "region", "after", inside="storage.log.opening:_open", phase="boot"),
    Point("recovery.before-publish", RECOVERS, "publish", inside="storage.log.opening:_open", phase="boot"),
    Point("recovery.after-publish", RECOVERS, "publish", "after", inside="storage.log.opening:_open", phase="boot"),
    # A respawn, and a clean stop. Without its fork server a broker continues, and starts another one.
    Point("fork-server.before-fork", FORK_SERVER, "fork", phase="respawn"),
    Point("forked.before-fork", FORK_SERVER, "fork", phase="respawn", hit=2),
    Point("supervisor.before-respawn", SUPERVISOR, "spawn", phase="respawn"),
    Point("supervisor.after-respawn", SUPERVISOR, "spawn", "after", phase="respawn"),
    Point("stop.draining", WORKER, "set", "after", path="state", note=3, phase="stop"),
    Point("stop.coordinator", COORDINATOR, "set", "after", path="state", note=3, phase="stop"),
    Point("stop.janitor", JANITOR, "set", "after", path="state", note=3, phase="stop"),
    Point("stop.controller", CONTROLLER, "set", "after", path="state", note=3, phase="stop"),
    Point("stop.snapshot", SUPERVISOR, "replace", path="*.snapshot", phase="stop"),
    Point("stop.fsync", SUPERVISOR, "fsync", path="*.log", phase="stop"),
    Point("stop.flushed", SUPERVISOR, "publish", inside="storage.log.flush:publish", phase="stop"),
    Point("stop.checkpoint", SUPERVISOR, "replace", path="*/recovery-point-offset-checkpoint", phase="stop"),
    Point("stop.before-mark", SUPERVISOR, "replace", path="*/.kafka_cleanshutdown", phase="stop"),
    Point("stop.after-mark", SUPERVISOR, "replace", "after", path="*/.kafka_cleanshutdown", phase="stop"),
)  # fmt: skip
NAMES = [point.name for point in POINTS]
