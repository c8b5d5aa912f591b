"""Each finding: its facts and its text."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.findings.facts import Affected, AffectedPartition, DirFacts, Facts, ProcessFacts
from odradek.broker.findings.findings import ERROR, WARNING, Finding, find, lines, summary

GIB = 2**30


def only(**facts: Any) -> Finding:
    (found,) = find(Facts(**facts))
    return found


def worker(number: int, *, is_alive: bool = True, **more: Any) -> ProcessFacts:
    return ProcessFacts(f"worker-{number}", True, is_alive, **more)


def some(*missing: int, count: int = 1) -> Affected:
    return Affected.of([AffectedPartition(f"t-{number}", missing) for number in range(count)], count)


def test_nothing_is_wrong() -> None:
    well = Facts(
        processes=[ProcessFacts("acceptor", False, True, 0, 5.0, 79, 100), worker(0, restarts=1, up_s=600)],
        dirs=[DirFacts("/d", size=10 * GIB, free=GIB)], shm=DirFacts("/dev/shm", size=10, free=1), certificate_days=30,
    )  # fmt: skip
    assert find(well) == []
    assert lines([]) == ["nothing is wrong"]
    assert summary([]) == "nothing is wrong"


def test_a_broker_that_stops_is_nothing_else() -> None:
    assert (
        only(is_stopping=True, not_serving="no worker runs", processes=[worker(0, is_alive=False)]).name == "stopping"
    )


@pytest.mark.parametrize(
    ("facts", "mend"),
    [
        ({"recovering": 3, "starting": ["controller"]}, "wait until 3 logs are recovered"),
        ({"starting": ["controller"]}, "wait for controller; if it lasts, see its log"),
        ({}, "see its log"),
    ],
)
def test_not_serving(facts: dict[str, Any], mend: str) -> None:
    found = only(not_serving="no worker runs", **facts)
    assert (found.name, found.severity) == ("not_serving", ERROR)
    assert found.text == "the broker serves no clients: no worker runs"
    assert found.mend.startswith(mend)


def test_a_dead_process() -> None:
    found = only(processes=[ProcessFacts("janitor", False, False), worker(0)])
    assert (found.name, found.severity, found.text) == ("process_dead", ERROR, "janitor does not run")


def test_a_dead_worker_before_a_living_one() -> None:
    assert only(processes=[worker(0, is_alive=False), worker(1)]).text == "worker-0 does not run"


def test_retired_workers_are_not_dead() -> None:
    assert find(Facts(processes=[worker(0), worker(1, is_alive=False), worker(2, is_alive=False)])) == []


def test_retired_worker_before_a_living_one_is_not_dead() -> None:
    """The first worker while an upgrade replaces the second."""
    assert find(Facts(processes=[worker(0, is_alive=False, is_retired=True), worker(1)])) == []


def test_a_restarted_process() -> None:
    found = only(processes=[worker(0, restarts=3, up_s=599.6)])
    assert (found.name, found.severity) == ("process_restarted", WARNING)
    assert found.text == "worker-0 ended and was started again, last 600 s ago (restarts: 3)"


def test_file_descriptors_near_the_limit() -> None:
    found = only(processes=[worker(0, files=820, files_limit=1024)])
    assert (found.name, found.severity) == ("files", WARNING)
    assert found.text == "worker-0 has 820 of 1,024 file descriptors open"
    assert "LimitNOFILE=" in found.mend


def test_offline_partitions() -> None:
    found = only(offline=some(count=7))
    assert (found.name, found.severity) == ("offline", ERROR)
    assert found.text == "7 partitions offline here: t-0, t-1, t-2, t-3, t-4 and 2 more"


def test_partitions_without_a_leader() -> None:
    found = only(leaderless=some(3, 2))
    assert (found.name, found.severity, found.text) == ("leaderless", ERROR, "1 partition without a leader: t-0")
    assert found.mend.startswith("start brokers 2, 3;")


def test_under_min_isr() -> None:
    found = only(under_min_isr=some(2))
    assert (found.name, found.severity) == ("under_min_isr", ERROR)
    assert found.mend == "look at broker 2: odradek status --cluster, or lower min.insync.replicas"


def test_under_min_isr_with_too_few_replicas() -> None:
    mend = only(under_min_isr=some()).mend
    assert mend == "add replicas: odradek reassign-partitions, or lower min.insync.replicas"


def test_at_min_isr() -> None:
    found = only(at_min_isr=some(2))
    assert (found.name, found.severity) == ("at_min_isr", WARNING)
    assert found.text == "1 partition where acks=all is refused if one more replica fails: t-0"


def test_under_replicated() -> None:
    found = only(under_replicated=some(2))
    assert (found.name, found.severity, found.text) == (
        "under_replicated",
        WARNING,
        "1 partition under-replicated: t-0",
    )
    assert found.mend == "look at broker 2: odradek status --cluster"


def test_a_failed_log_directory_is_not_full_too() -> None:
    found = only(dirs=[DirFacts("/d", True, 100, 0)])
    assert (found.name, found.severity) == ("log_dir_failed", ERROR)
    assert found.text == "log directory /d has failed, and its partitions are offline"


@pytest.mark.parametrize(("free", "severity"), [(2 * GIB, ERROR), (5 * GIB, WARNING)])
def test_a_disk_that_is_nearly_full(free: int, severity: str) -> None:
    found = only(dirs=[DirFacts("/d", False, 110 * GIB, free)])
    assert (found.name, found.severity) == ("disk_nearly_full", severity)
    assert found.text == f"the disk of /d is nearly full: {free / GIB:.1f} GiB of 110.0 GiB are free"
    assert "odradek.retention.free.bytes" in found.mend


def test_a_disk_that_is_kept_free_may_be_that_full() -> None:
    full = DirFacts("/d", False, 100 * GIB, 5 * GIB)
    assert find(Facts(dirs=[full], keep_free=5 * GIB)) == []
    assert only(dirs=[full], keep_free=6 * GIB).name == "disk_nearly_full"


def test_shared_memory_that_is_nearly_full() -> None:
    found = only(shm=DirFacts("/dev/shm", False, 10 * GIB, GIB // 2))
    assert (found.name, found.mend) == ("shm_nearly_full", "mount -o remount,size=SIZE /dev/shm")


def test_zookeeper_is_away() -> None:
    found = only(zookeeper="z:2181/kafka", zookeeper_lost_s=12.3)
    assert (found.name, found.severity) == ("zookeeper_lost", ERROR)
    assert found.text == "no connection to ZooKeeper since 12 s: no metadata can change"
    assert found.mend == "start it, or correct zookeeper.connect=z:2181/kafka"


@pytest.mark.parametrize(
    ("days", "severity", "text"),
    [(-0.5, ERROR, "has expired"), (6.6, ERROR, "expires in 7 days"), (29.0, WARNING, "expires in 29 days")],
)
def test_a_certificate(days: float, severity: str, text: str) -> None:
    found = only(certificate_days=days)
    expected = ("certificate", severity, f"a certificate of the listeners {text}", "odradek tls renew")
    assert found == Finding(*expected)


def test_unknown_retention() -> None:
    found = only(retention_unknown=["a", "b"])
    assert (found.name, found.text) == ("retention_unknown", "retention unknown, so nothing is deleted: a, b")
    assert "odradek adopt --defaults" in found.mend


def test_errors_come_first() -> None:
    found = find(Facts(under_replicated=some(2), certificate_days=-1, offline=some()))
    assert [one.name for one in found] == ["offline", "certificate", "under_replicated"]
    assert summary(found) == "ERROR: 1 partition offline here: t-0 (and 2 more)"
    assert lines(found)[:2] == [f"ERROR: {found[0].text}", f"  to do: {found[0].mend}"]
    assert found[0].as_json() == {
        "name": "offline", "severity": ERROR, "text": found[0].text, "mend": found[0].mend,
    }  # fmt: skip
