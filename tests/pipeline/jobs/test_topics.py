"""The settings that each kind of client gets, without a broker."""

from __future__ import annotations

from odradek.pipeline.jobs import topics
from odradek.pipeline.writing import producer_settings

LEAST = {"bootstrap.servers": "127.0.0.1:1"}
OF_READERS = {"fetch.max.bytes": "1000", "group.id": "g", "isolation.level": "read_committed"}


def test_producer_gets_no_consumer_settings() -> None:
    """All settings that a producer knows are kept."""
    found = topics.writers({**LEAST, **OF_READERS, "acks": "all"})
    assert found == {**LEAST, "acks": "all"}
    assert producer_settings.librdkafka(found)
    assert not [name for name in topics.READERS if producer_settings.known(name)]


def test_metadata_client_accepts_unknown_settings() -> None:
    topics.client({**LEAST, **OF_READERS, "what.nobody.knows": "1"})
