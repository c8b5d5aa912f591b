"""Tasks, and drivers between the sink's commit and their own, are killed; one straggler comes back much later.

One story, for each start of Spark takes seconds: batches of 100 rows, two tasks each.
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
]  # Spark starts three time]

ROWS = 450
DEATHS = {
    "t0_0": "sent",  # a task whose rows are on the broker
    "t0_1": "committed",  # one whose commit Spark does not hear of
    "t1_1": "stray",  # one that outlives its driver, which is killed when the other task of the batch has committed
    "d2": "driver",  # the driver, when both have and the checkpoint does not know
}


class Told(NamedTuple):
    """What it came to."""

    target: str
    sent: list[str]
    stream: Stream


@pytest.fixture(scope="module")
def story(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
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
        yield Told(target, sent, query)


def test_each_row_is_there_once(story: Told, broker: Any) -> None:
    assert_each_once(broker, story.target, story.sent)


def test_all_died_as_they_should(story: Told) -> None:
    assert {path.name for path in (story.stream.folder / "died").iterdir()} == {"0-0", "0-1", "1-1", "2"}


def test_there_was_something_to_hide(story: Told, broker: Any) -> None:
    """Rows of the killed task, which a careless reader sees."""
    assert len(written(broker, story.target)) > ROWS


def test_the_straggler_was_refused(story: Told) -> None:
    """Its rows are there, and those of later batches."""
    strayed = (story.stream.folder / "strayed").read_text()
    assert "has already written batch 4, and now gets batch 1: a checkpoint was reset" in strayed
