"""Tasks are killed, and drivers between the sink's commit and their own; one stray task writes much later.

One fixture for all tests, because each start of Spark takes seconds: batches of 100 rows, two tasks each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ...clients.admin import create_topic
from ..written import written
from . import stream
from .checker import assert_each_once
from .stream import Stream

pytestmark = [
    pytest.mark.live,
    pytest.mark.long,
    pytest.mark.needs("java"),
    pytest.mark.timeout(600),
]  # Spark starts three times

ROWS = 450
DEATHS = {
    "t0_0": "sent",  # a task after its rows are on the broker
    "t0_1": "committed",  # a task after its commit, which Spark does not know
    "t1_1": "stray",  # a task outlives its driver, which is killed when the batch's other task has committed
    "d2": "driver",  # the driver, after both commits and before the checkpoint's
}


class Story(NamedTuple):
    """The result of the deaths."""

    target: str
    sent: list[str]
    stream: Stream


@pytest.fixture(scope="module")
def story(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    source, target = create_topic(broker, partitions=2), create_topic(broker, partitions=3)
    sent = stream.feed(broker, source, range(ROWS), 2)
    with stream.opened(Stream(tmp_path_factory.mktemp("story"), broker, source, target, 100, **DEATHS)) as query:
        query.await_file("died/1-1")
        query.await_file("done/1-0")
        query.kill()
        query.start()
        query.await_file("died/2")
        query.kill()
        query.start()
        query.finish()
        (query.folder / "go").touch()
        query.await_stray()
        yield Story(target, sent, query)


def test_each_row_is_written_once(story: Story, broker: Any) -> None:
    assert_each_once(broker, story.target, story.sent)


def test_all_planned_deaths_happened(story: Story) -> None:
    assert {path.name for path in (story.stream.folder / "died").iterdir()} == {"0-0", "0-1", "1-1", "2"}


def test_rows_of_killed_tasks_are_aborted(story: Story, broker: Any) -> None:
    """A reader with read_uncommitted sees the rows of the killed task."""
    assert len(written(broker, story.target)) > ROWS


def test_stray_task_is_refused(story: Story) -> None:
    """Its rows are already written, and so are those of later batches."""
    strayed = (story.stream.folder / "strayed").read_text()
    assert "has already written batch 4, and now gets batch 1: a checkpoint was reset" in strayed
