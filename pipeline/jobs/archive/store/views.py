"""The files of a topic's folder that Spark sees: the log of files that its own streams write, in `_spark_metadata`.

`spark.read.parquet(".../topic=orders")` reads the files that this log names, and no others. The file `<k>.compact` has
all of them. Spark takes the distance of the last two for the interval between such files, so they are numbered one by
one, and the last ones stay. A view that exists is complete, and a reader that lists an older one still finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

from odradek.pipeline.jobs.archive.store.manifest import File

if TYPE_CHECKING:
    from odradek.pipeline.jobs.files import Files

_KEPT = 3
_BLOCK = 128 << 20  # bytes; Spark requires it and does not use it
_NAME = re.compile(r"(\d+)\.compact")
_IN_URI = "/:@=,+;~!$&'()*[]"


def begin(files: Files, topic: str) -> None:
    """Show Spark an empty log for a new topic, because without one it would list the folder itself."""
    if not _numbers(files, topic):
        files.write(_path(topic, 0), text(files, []))


def show(files: Files, topic: str, live: Iterable[File]) -> None:
    """Show Spark these files of the topic. A correct view stays unchanged."""
    wanted, numbers = text(files, live), _numbers(files, topic)
    if numbers and files.read(_path(topic, numbers[-1])) == wanted:
        return
    files.write(_path(topic, numbers[-1] + 1 if numbers else 0), wanted)
    for number in numbers[: 1 - _KEPT]:
        files.delete(_path(topic, number))


def text(files: Files, live: Iterable[File]) -> str:
    """The log's content; it names a file by its full URI."""
    return "\n".join(["v1", *(_line(files, file) for file in live)])


def _line(files: Files, file: File) -> str:
    status = {
        "path": quote(files.uri(file.path), safe=_IN_URI),
        "size": file.size,
        "isDir": False,
        "modificationTime": file.modified_ms,
        "blockReplication": 1,
        "blockSize": _BLOCK,
        "action": "add",
    }
    return json.dumps(status, separators=(",", ":"))


def _folder(topic: str) -> str:
    return f"topic={topic}/_spark_metadata"


def _path(topic: str, number: int) -> str:
    return f"{_folder(topic)}/{number}.compact"


def _numbers(files: Files, topic: str) -> list[int]:
    names = (entry.path.rpartition("/")[2] for entry in files.list(_folder(topic)))
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)
