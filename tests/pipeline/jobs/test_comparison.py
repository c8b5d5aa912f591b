"""Reports of differing records, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.pipeline.errors import DataLoss, OptionError, PipelineError
from odradek.pipeline.jobs.archive.verify import checksums
from odradek.pipeline.jobs.archive.verify.comparison import Comparison
from odradek.pipeline.jobs.archive.verify.differences import Report
from odradek.pipeline.jobs.causes import caused_by

from ...clients.admin import create_topic, unique

pytestmark = pytest.mark.live

OF_READERS = {"kafka.fetch.max.bytes": "1000", "kafka.group.id": "g", "kafka.isolation.level": "read_committed"}


def told(broker: Any, topic: str) -> Report:
    """The report of one record that is missing in the log."""
    unused: Any = None
    comparison = Comparison(unused, unused, {"kafka.bootstrap.servers": broker.bootstrap, **OF_READERS}, topic)
    comparison._tell([(0, checksums.EXTRA, 1, 2, 2)])
    return comparison._found


def test_differences_are_reported_without_a_known_cleanup_policy(broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Also with settings that only consumers have."""
    compacted, other, gone = create_topic(broker, cleanup_policy="compact"), create_topic(broker), unique("gone")
    line = "partition 0: 1 records are in the archive but not in the log: offsets 2 to 2"
    assert told(broker, compacted) == Report([], [f"{compacted}: {line}, as expected of a compacted topic"])
    assert told(broker, other) == Report([f"{other}: {line}"])
    assert not [record for record in caplog.records if record.name.startswith("odradek.")]
    assert told(broker, gone) == Report([f"{gone}: {line}"])
    assert [record.getMessage() for record in caplog.records if f"{gone}: is it compacted? " in record.getMessage()]


def test_error_class_is_found_in_the_cause() -> None:
    """Also if Spark only passes the text of a traceback on."""
    text = "Traceback\nodradek.pipeline.errors.DataLoss: t-0: offsets 0 to 1 are gone\n"
    assert caused_by(DataLoss("x"), DataLoss)
    assert caused_by(DataLoss("x"), PipelineError)
    assert caused_by(RuntimeError(text), DataLoss)
    assert not caused_by(RuntimeError(text), OptionError)
    assert not caused_by(PipelineError("x"), DataLoss)
