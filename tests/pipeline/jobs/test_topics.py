"""What of a client's settings is told to whom, without a broker."""

from __future__ import annotations

from odradek.pipeline.jobs import topics
from odradek.pipeline.writing import producer_settings

LEAST = {"bootstrap.servers": "127.0.0.1:1"}
OF_READERS = {"fetch.max.bytes": "1000", "group.id": "g", "isolation.level": "read_committed"}


def test_a_writer_is_not_told_what_is_for_readers() -> None:
    """And nothing is left out that it knows."""
    found = topics.writers({**LEAST, **OF_READERS, "acks": "all"})
    assert found == {**LEAST, "acks": "all"}
    assert producer_settings.librdkafka(found)
    assert not [name for name in topics.READERS if producer_settings.known(name)]


def test_who_only_asks_needs_no_more_than_a_writer_knows() -> None:
    topics.client({**LEAST, **OF_READERS, "what.nobody.knows": "1"})
