"""Fetches of followers wait for records, and return a new high watermark or log start soon."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.workers.fetch import follower_progress

from ..inprocess import Bench, Client
from ..leading import lead, part, publish
from .follower_requests import InSession, fill, values_in


def test_fetch_at_log_end_waits_for_records_only(bench: Bench, client: Client) -> None:
    lead(bench, [1, 2], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    assert follower.answered() is None
    fill(bench, client)
    found = follower.answer()
    assert (values_in(found[0]), found[0].high_watermark) == ([b"0"], 0)


def test_fetch_waits_for_min_bytes(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([], min_bytes=100)
    fill(bench, client)
    bench.turn(3)
    assert follower.answered() is None
    fill(bench, client)
    assert values_in(follower.answer()[0]) == [b"0", b"0"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"state": slots.FOLLOWER, "leader_epoch": 1, "led_since": -1}, errors.NOT_LEADER_OR_FOLLOWER),
        ({"incarnation": 4711}, errors.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_lost_leadership_ends_the_wait(bench: Bench, client: Client, change: dict[str, int], error: int) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    publish(bench, **change)
    assert follower.answer()[0].error_code == error


def test_new_high_watermark_is_sent_soon(bench: Bench, client: Client, later: Callable[[float], None]) -> None:
    slot = lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    fill(bench, client)
    follower.ask([])
    assert values_in(follower.answer()[0]) == [b"0"]
    follower.ask([part(1)])
    assert (slot.state().hw, follower.answered()) == (1, None)
    bench.worker.followers.tick()
    assert follower.answered() is None  # records may come at any moment
    later(follower_progress.PROGRESS_DELAY_S * 0.9)
    bench.worker.followers.tick()
    assert follower.answered() is None
    later(follower_progress.PROGRESS_DELAY_S * 0.2)
    found = follower.answer()
    assert (found[0].high_watermark, found[0].records or b"") == (1, b"")
    follower.ask([])
    later(1)
    began = time.monotonic()
    while time.monotonic() < began + 0.3:
        bench.turn()
    assert follower.answered() is None  # the follower has the high watermark


@pytest.mark.usefixtures("later")
def test_high_watermark_comes_with_records(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    for n in range(20):
        follower.ask([part(n)] if n else [])
        fill(bench, client)
        found = follower.answer()
        assert (values_in(found[0]), found[0].high_watermark) == ([b"0"], n)


def test_new_log_start_is_sent_soon(bench: Bench, client: Client) -> None:
    lead(bench, [1], [1])
    fill(bench, client, 2)
    follower = InSession(bench, 1)
    follower.open([part(2)])
    follower.ask([])
    publish(bench, log_start=1)
    assert follower.answer()[0].log_start_offset == 1


def test_follower_that_disconnects_is_removed(bench: Bench, client: Client, later: Callable[[float], None]) -> None:
    lead(bench, [1], [1])
    follower = InSession(bench, 1)
    follower.open([part(0)])
    follower.ask([])
    publish(bench, log_start=0, hw=0, leo=0, min_isr=2)
    follower.client.sock.close()
    publish(bench, hw=1, leo=1)
    later(follower_progress.PROGRESS_DELAY_S)
    bench.turn(3)
    bench.worker.followers.tick()
    assert (len(bench.worker.purgatory), bench.worker.followers._scheduled) == (0, {})
