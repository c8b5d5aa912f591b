"""A data directory goes from a released version to this tree and back; each continues what the other wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..harness.broker import Broker
from .contents import KINDS, PROPERTIES, Kind, Metadata
from .released import HERE, install

pytestmark = pytest.mark.live


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path, **PROPERTIES)
    yield made
    made.close()


def write_more(broker: Broker, kinds: list[Kind]) -> None:
    for kind in kinds:
        kind.add(broker)
        kind.verify(broker)


def verify(broker: Broker, kinds: list[Kind]) -> None:
    for kind in kinds:
        kind.verify(broker)


def check(broker: Broker, code: Path) -> None:
    """`odradek check` of this version, which stays installed."""
    install(broker, code)
    done = broker.command("check", "--deep", str(broker.data_dir))
    assert done.returncode == 0, done.stdout


def warnings(broker: Broker) -> list[str]:
    """What opening the logs found damaged."""
    return [line for line in broker.log.splitlines() if "odradek.storage.log.opening" in line and "WARNING" in line]


def test_each_version_reads_and_continues_what_the_other_one_wrote(released: Path, broker: Broker) -> None:
    """It stops cleanly: nothing is recovered, and `odradek check` finds nothing."""
    install(broker, released)
    broker.start()
    kinds: list[Kind] = [*(kind(broker) for kind in KINDS), Metadata(broker)]
    for code in (HERE, released):
        write_more(broker, kinds)
        broker.stop()
        check(broker, code)
        broker.start()
        verify(broker, kinds)
    write_more(broker, kinds)
    broker.stop()
    for code in (HERE, released):
        check(broker, code)
    assert warnings(broker) == []


def test_each_version_recovers_what_the_other_one_left_when_it_was_killed(released: Path, broker: Broker) -> None:
    install(broker, released)
    broker.start()
    metadata = Metadata(broker)
    kinds: list[Kind] = [*(kind(broker) for kind in KINDS), metadata]
    for code in (HERE, released):
        write_more(broker, kinds)
        metadata.await_checkpoint(broker)
        broker.kill()
        install(broker, code)
        broker.start()
        verify(broker, kinds)
    broker.stop()
    for code in (HERE, released):
        check(broker, code)
