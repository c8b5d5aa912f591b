"""A picture of `odradek top` for the documents, from a terminal's screen by way of Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer

from ...harness.broker import Broker
from ...harness.browser import Browser
from ...harness.process import wait_until
from .terminal import top

pytestmark = [pytest.mark.live, pytest.mark.needs("chromium")]

_PAGE = """document.body.style = "margin:0;background:#1e1e1e;color:#d4d4d4";
const box = document.createElement("pre");
box.style = "margin:0;padding:12px;font:16px/1.3 monospace;display:inline-block";
box.innerHTML = MARKUP;
document.body.replaceChildren(box)"""


def send(producer: KafkaProducer) -> bool:
    """A few hundred records to each of three topics, acknowledged."""
    for topic in ("flights", "orders", "payments") * 300:
        producer.send(topic, bytes(1000))
    producer.flush(30)
    return True


def test_a_picture_of_top(fresh_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """With records that come while it is drawn."""
    broker = fresh_broker(num_partitions=3)
    with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer, top(broker) as (terminal, _):
        terminal.await_line("worker-0", "running")
        wait_until(lambda: send(producer) and "k records/s" in terminal.lines[1], 60, "records are counted")
        markup = terminal.markup
    with Browser(tmp_path / "browser") as browser:
        browser.open("about:blank")
        browser.evaluate(_PAGE.replace("MARKUP", json.dumps(markup)))
        assert "worker-0" in browser.text()
        browser.keep("top.png", tmp_path, "pre")
