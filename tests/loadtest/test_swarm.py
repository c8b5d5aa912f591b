"""Short runs of `make locust` against a real broker: headless, distributed, and with the web page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from odradek.loadtest.swarm import compare, ledger
from odradek.loadtest.swarm.options import EVENTS, TOPICS
from odradek.loadtest.swarm.reading import _consumer, read, verify
from odradek.loadtest.swarm.run import LOCUSTFILE, Plan
from odradek.loadtest.swarm.runs import Run
from tests.harness.broker import Broker
from tests.harness.process import die_with_parent, free_port, wait_until

pytestmark = pytest.mark.live

SWARM = [sys.executable, "-m", "odradek.loadtest.swarm"]
SECONDS = 120


class Swarmed(NamedTuple):
    """A broker after a swarm of two locust workers, with their ledgers and output."""

    bootstrap: str
    ledgers: Path
    output: str
    status: int


@pytest.fixture(scope="module")
def swarmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarmed]:
    room = tmp_path_factory.mktemp("swarm")
    broker = Broker(room / "broker").start()
    try:
        plan = Plan(10, 20, 2, "steady", None, room / "report.html", ("--partitions", "4"))
        done = _run(plan.words(broker.bootstrap, room / "ledger"), room)
        yield Swarmed(broker.bootstrap, room / "ledger", done.stdout, done.returncode)
    finally:
        broker.close()


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=SECONDS,
        preexec_fn=die_with_parent,
    )


def test_no_user_has_an_error(swarmed: Swarmed) -> None:
    assert swarmed.status == 0, swarmed.output
    for row in [
        "ack, Producer",
        "ack, Bursty",
        "ack, Mixed",
        "ack, Script",
        "end to end, from send to read",
        "is behind",
    ]:
        assert row in swarmed.output


def test_every_worker_writes_its_ledger_and_no_record_is_lost(swarmed: Swarmed) -> None:
    assert [len(np.fromfile(path, ledger.ACKED)) > 0 for path in ledger.files(swarmed.ledgers)] == [True, True]
    findings = verify(swarmed.bootstrap, swarmed.ledgers, TOPICS)
    assert findings.kept, findings.faults
    assert findings.acked == _acknowledged(swarmed.output)
    assert {"swarm-group-0", "swarm-group-1"} <= findings.groups


def _acknowledged(output: str) -> int:
    """The acknowledged records that locust's master reports; the sum includes its workers' last reports."""
    found = re.search(r"^ +Aggregated +(\d+) ", output, re.MULTILINE)
    assert found, output
    return int(found[1])


def test_lost_acknowledged_record_is_reported(swarmed: Swarmed) -> None:
    """The ledger and the broker are the same, but one record is dropped after the read."""
    rows = ledger.acked(swarmed.ledgers)
    mine = rows[(rows["topic"] == EVENTS.encode()) & (rows["partition"] == 0)]
    consumer = _consumer(swarmed.bootstrap)
    try:
        there = read(consumer, EVENTS, 0)
    finally:
        consumer.close()
    victim = int(mine["offset"][len(mine) // 2])
    whole, holed = compare.Findings(), compare.Findings()
    compare.partition(whole, "whole", mine, there)
    compare.partition(holed, "holed", mine, there[there["offset"] != victim])
    assert whole.kept
    assert f"holed: 1 acknowledged records are lost, at offsets {victim}" in holed.faults


def test_unstored_record_and_skipped_offset_are_reported(swarmed: Swarmed, tmp_path: Path) -> None:
    """As if the broker had acknowledged a record that it did not store, and a group had skipped one."""
    for path in ledger.files(swarmed.ledgers):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    book = ledger.Ledger(tmp_path)
    book.acked(EVENTS, 0, 10_000_000, b"never stored")
    book.read("skipping", [Run(EVENTS, 0, 0, 5), Run(EVENTS, 0, 7, 9)])
    book.flush()
    findings = verify(swarmed.bootstrap, tmp_path, TOPICS)
    assert findings.faults == [
        f"{EVENTS}-0: 1 acknowledged records are lost, at offsets 10000000",
        f"{EVENTS}-0: 1 gaps in what skipping read, at offsets 6",
    ]


@pytest.mark.long
def test_no_record_is_lost_while_every_kind_of_process_is_killed(tmp_path: Path) -> None:
    """Clients retry, so no user has an error; all acknowledged records stay, and groups skip none."""
    broker = Broker(tmp_path / "broker").start()
    try:
        plan = Plan(40, 40, 2, "steady", None, tmp_path / "report.html")
        words, output = plan.words(broker.bootstrap, tmp_path / "ledger"), tmp_path / "output"
        with output.open("wb") as out:
            swarm = subprocess.Popen(words, cwd=tmp_path, stdout=out, stderr=out, preexec_fn=die_with_parent)
        for role in ["worker", "worker", "coordinator", "controller", "janitor", "acceptor"]:
            time.sleep(4)
            broker.await_respawn(role, broker.kill_role(role))
        assert swarm.wait(SECONDS) == 0, output.read_text()
        findings = verify(broker.bootstrap, tmp_path / "ledger", TOPICS)
        assert findings.kept, findings.faults
    finally:
        broker.close()


def test_run_with_a_load_shape_writes_its_report(tmp_path: Path) -> None:
    report = tmp_path / "out" / "report.html"
    words = ["--users", "5", "--minutes", "0.2", "--shape", "spike", "--report", str(report), "--", "--partitions", "2"]
    done = _run([*SWARM, *words], tmp_path)
    assert done.returncode == 0, done.stdout
    assert "Shape test updating to 5 users" in done.stdout
    assert "kept: all" in done.stdout
    assert f"report: {report}" in done.stdout
    page = report.read_text()
    assert re.search(r'<div id="verdict".*kept: all .*no user had an error', page)
    _has_charts(page)
    assert '"end_to_end_0.5"' in page.replace("&#34;", '"')


def _has_charts(text: str) -> None:
    """Locust's script has our charts. A failure means that a new release of locust has another list of charts."""
    for title in ["End-to-end latency, send to read (ms)", "Lag of a group (records)", "Produce ack latency"]:
        assert text.count(title) == 1


def test_errors_of_users_fail_the_run(tmp_path: Path) -> None:
    """Clients refuse two megabytes: every user fails, and no record is acknowledged."""
    extra = ["--", "--value-size", "2000000", "Producer"]
    done = _run(
        [*SWARM, "--users", "2", "--minutes", "0.12", "--report", str(tmp_path / "report.html"), *extra], tmp_path
    )
    assert done.returncode == 1, done.stdout
    assert "users had errors" in done.stdout
    assert "NOTHING TO COMPARE" in done.stdout
    kept = re.search(r"are kept in (\S+)", done.stdout)
    assert kept
    subprocess.run(["rm", "-r", kept[1]], check=True)


def test_ctrl_c_compares_the_records_of_a_run_started_from_the_page(tmp_path: Path) -> None:
    """The web page starts the run, our charts have data, and Ctrl-C still leads to the comparison."""
    port, report = free_port(), tmp_path / "report.html"
    words = [*SWARM, "--users", "4", "--web", str(port), "--report", str(report)]
    with (tmp_path / "output").open("wb") as out:
        swarm = subprocess.Popen(
            words, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        _use_page(f"http://127.0.0.1:{port}")
        os.killpg(swarm.pid, signal.SIGINT)
        status = swarm.wait(SECONDS)
    finally:
        swarm.kill()
    output = (tmp_path / "output").read_text()
    assert status == 0, output
    assert "kept: all" in output
    assert 'id="verdict"' in report.read_text()


def _use_page(url: str) -> None:
    page = wait_until(lambda: _get(url), 60, "the page is there")
    (script,) = re.findall(r'src="\.?(/assets/[^"]+\.js)"', page)
    _has_charts(_get(url + script))
    form = b"user_count=4&spawn_rate=4&user_classes=Producer&user_classes=GroupMember&shape_class=Default"
    assert json.loads(_get(url + "/swarm", form))["success"]
    wait_until(lambda: _charted(url), 60, "the end-to-end latency is charted")


def _charted(url: str) -> bool:
    time.sleep(0.3)
    answer = json.loads(_get(url + "/stats/requests"))
    rows = {row["method"]: row for row in answer["stats"]}
    line = answer["current_response_time_percentiles"].get("end_to_end_0.99")
    return bool(line) and rows.get("CONSUME", {}).get("num_requests", 0) > 0 and "LAG" in rows


def _get(url: str, form: bytes | None = None) -> str:
    try:
        with urllib.request.urlopen(url, form, timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_locust_lists_the_users() -> None:
    done = _run([sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--list"], LOCUSTFILE.parent)
    assert {"Producer", "GroupMember", "Mixed", "Bursty", "Script"} <= set(done.stdout.split())
