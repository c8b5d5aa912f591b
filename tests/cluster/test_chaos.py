"""Chaos: its checks find planted faults; a long run of random faults finds none (`make chaos`, tests/CHAOS.md).

`ODRADEK_TEST_SEED` repeats a run's faults, `ODRADEK_TEST_MINUTES` sets its duration.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from ..clients.raw.batches import batch
from ..harness.process import wait_until
from .chaos import plan, report
from .chaos.__main__ import run
from .chaos.divergence import differences
from .chaos.faults import FAULTS
from .chaos.network import HUB, Network
from .chaos.readers import Commits
from .chaos.report import Summary


def test_seed_determines_faults() -> None:
    """This holds also for a run that starts in the middle."""
    first = list(itertools.islice(plan.rounds(7), 40))
    assert first == list(itertools.islice(plan.rounds(7), 40))
    assert first != list(itertools.islice(plan.rounds(8), 40))
    kinds = {kind for one in first for step in one.steps for kind in (step.kind, step.second) if kind}
    assert kinds == FAULTS.keys(), "some faults are never drawn"


# -- the checks


def replica(folder: Path, *segments: list[bytes]) -> Path:
    """A partition's directory; a batch of one record takes one offset."""
    folder.mkdir()
    offset = 0
    for batches in segments:
        with (folder / f"{offset:020d}.log").open("wb") as file:
            for one in batches:
                file.write(offset.to_bytes(8, "big") + one[8:])
                offset += 1
    return folder


def test_replicas_may_roll_at_different_offsets(tmp_path: Path) -> None:
    some = [batch([b"%d" % number]) for number in range(5)]
    first = replica(tmp_path / "a", some[:2], some[2:])
    second = replica(tmp_path / "b", some)
    assert differences("t-0", [first, second], 5) == []


def test_changed_byte_is_found(tmp_path: Path) -> None:
    some = [batch([b"%d" % number]) for number in range(5)]
    changed = bytearray(some[3])
    changed[15] ^= 1  # the leader epoch, which the checksum does not cover
    first = replica(tmp_path / "a", some)
    second = replica(tmp_path / "b", [*some[:3], bytes(changed), some[4]])
    assert len(differences("t-0", [first, second], 5)) == 1
    assert differences("t-0", [first, second], 3) == [], "the byte is above the high watermark"


def test_short_replica_is_found(tmp_path: Path) -> None:
    some = [batch([b"%d" % number]) for number in range(5)]
    first, second = replica(tmp_path / "a", some), replica(tmp_path / "b", some[:4])
    assert "4..4 epoch" in differences("t-0", [first, second], 5)[0]
    assert differences("t-0", [first, second], 4) == []


def test_decreasing_commit_is_found() -> None:
    commits = Commits()
    commits.note([TopicPartition("t", 0, 5)])
    least = commits.noted()
    commits.note([TopicPartition("t", 0, 9)])
    commits.fetched(least, [TopicPartition("t", 0, 5), TopicPartition("t", 1, -1001)])
    assert commits.faults == []
    commits.fetched(commits.noted(), [TopicPartition("t", 0, 5)])
    commits.fetched(commits.noted(), [TopicPartition("t", 0, -1001)])
    assert len(commits.faults) == 2


def test_late_commit_is_only_counted() -> None:
    """The client sent the commit again, to another coordinator, before the first one received it."""
    commits = Commits()
    commits.delay([TopicPartition("t", 0, 7)])
    commits.note([TopicPartition("t", 0, 7)])
    commits.note([TopicPartition("t", 0, 9)])
    commits.fetched(commits.noted(), [TopicPartition("t", 0, 7)])
    assert (commits.faults, commits.came_late) == ([], 1)
    commits.fetched(commits.noted(), [TopicPartition("t", 0, 6)])
    assert len(commits.faults) == 1


@pytest.mark.live
def test_report_has_a_row_for_each_run(tmp_path: Path) -> None:
    """Each row has as many cells as the head has columns."""
    path = tmp_path / "CHAOS.md"
    for seed in range(2):
        summary = Summary(seed, rounds=3)
        summary.blow("SIGKILL", 0.5)
        summary.faults += ["lost: a | record\nand more"] * seed
        report.add(path, summary)
    rows = [line for line in path.read_text().splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert len({row.count("|") for row in rows}) == 1


# -- the network


def reaches(address: str, port: int) -> bool:
    """Whether a connection is accepted there within half a second."""
    try:
        socket.create_connection((address, port), 0.5).close()
    except OSError:
        return False
    return True


@pytest.mark.live
def test_cut_network_passes_nothing() -> None:
    network = Network(2)
    try:
        with network.entered(), socket.create_server((HUB, 0)) as server:
            port = server.getsockname()[1]
            with network.at(0):
                wait_until(lambda: reaches(HUB, port), 30, "packets of an uncut network")
            with network.cut(0, HUB):
                with network.at(0):
                    assert not reaches(HUB, port)
                with network.at(1):
                    wait_until(lambda: reaches(HUB, port), 30, "packets of the host that is not cut")
            with network.at(0), network.slow(0, 512):
                wait_until(lambda: reaches(HUB, port), 30, "packets of the restored network")
    finally:
        network.close()


# -- a whole run


@pytest.mark.long
@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(3600)
def test_random_faults_break_no_guarantee(tmp_path: Path) -> None:
    seed = int(os.environ.get("ODRADEK_TEST_SEED", random.randrange(1 << 32)))
    minutes = float(os.environ.get("ODRADEK_TEST_MINUTES", 10))
    print(f"ODRADEK_TEST_SEED={seed} ODRADEK_TEST_MINUTES={minutes:g}")
    summary = run(seed, 0, minutes, tmp_path)
    print(summary.row("this"))
    assert summary.faults == [], "\n".join(summary.faults[:20])
