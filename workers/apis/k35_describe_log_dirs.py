"""DescribeLogDirs (key 35), versions 0 to 5: log directories, and the size of partitions in them.

v3+ have a top-level error, v4+ the sizes of the file system (KIP-827). Sizes are those of the .log files, in bytes. A
null topic list means all topics. Offset lags are 0: there are no followers and no moves between directories.
Each partition is a step (Services.begin), since it calls stat on its files.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from odradek.protocol import errors
from odradek.protocol.errors import KAFKA_STORAGE_ERROR
from odradek.protocol.library import message_class
from odradek.storage.files import names
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.context import Context

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services


def handle(services: Services, request: Any, context: Context) -> Iterator[None]:
    requested = _requested(services, request)
    failed = services.shared.failed_dirs()
    results = []
    for number, path in enumerate(services.catalog.paths):
        found = _offline(path) if number in failed else (yield from _log_dir(path, requested.get(number, {})))
        results.append(found)
    context.reply(message_class("DescribeLogDirsResponse")(error_code=errors.NONE, results=results))


def _requested(services: Services, request: Any) -> dict[int, dict[str, list[int]]]:
    """The requested partitions on this broker, by log directory and topic."""
    topics = services.snapshot.topics
    if request.topics is None:
        partitions = [(name, index) for name, topic in topics.items() for index in range(len(topic))]
    else:
        partitions = [(topic.topic, index) for topic in request.topics for index in topic.partitions]
    found: dict[int, dict[str, list[int]]] = {}
    for name, index in dict.fromkeys(partitions):
        info = services.snapshot.partition(name, index)
        if info is not None and info.slot >= 0:
            found.setdefault(info.log_dir, {}).setdefault(name, []).append(index)
    return found


def _offline(path: str) -> Any:
    result = message_class("DescribeLogDirsResponse").DescribeLogDirsResult
    return result(error_code=KAFKA_STORAGE_ERROR, log_dir=path, topics=[])


def _log_dir(path: str, requested: dict[str, list[int]]) -> Generator[None, None, Any]:
    result = message_class("DescribeLogDirsResponse").DescribeLogDirsResult
    try:
        disk = os.statvfs(path)
        topics = []
        for name, indexes in requested.items():
            topics.append((yield from _topic(path, name, indexes)))
    except OSError:
        return _offline(path)
    return result(
        error_code=errors.NONE,
        log_dir=path,
        topics=topics,
        total_bytes=disk.f_blocks * disk.f_frsize,
        usable_bytes=disk.f_bavail * disk.f_frsize,
    )


def _topic(path: str, name: str, indexes: list[int]) -> Generator[None, None, Any]:
    topic = message_class("DescribeLogDirsResponse").DescribeLogDirsResult.DescribeLogDirsTopic
    partitions = []
    for index in sorted(indexes):
        size = _size(os.path.join(path, names.partition_dir(name, index)))
        row = topic.DescribeLogDirsPartition(
            partition_index=index, partition_size=size, offset_lag=0, is_future_key=False
        )
        partitions.append(row)
        yield
    return topic(name=name, partitions=partitions)


def _size(directory: str) -> int:
    """Bytes in the .log files; files and directories may disappear meanwhile."""
    total = 0
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return 0
    for entry in entries:
        if entry.name.endswith(names.LOG):
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue
    return total


API = Api(key=35, name="DescribeLogDirs", versions=(0, 5), handle=handle)
