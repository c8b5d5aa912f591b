"""The console of a real broker by HTTP: its data are what clients did, and a refusal is one line that helps."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ....clients.admin import create_topic
from ....clients.raw.batches import batch
from ....clients.raw.calls import produce
from ....harness.broker import Broker
from ....harness.cluster import Cluster
from ....harness.process import free_port, wait_until
from ....harness.wire import answers
from ....workers.authentication import client_settings
from ....workers.authentication.client_settings import Way
from ....workers.authentication.secured_broker import SecuredBroker
from .conftest import GROUP, MARKUP, Console, fill, started

pytestmark = pytest.mark.live

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def test_the_page_is_whole_without_other_hosts(console: Console) -> None:
    for path, kind in {"/": "text/html", "/console.js": "text/javascript", "/console.css": "text/css"}.items():
        status, body, headers = console.get(path)
        assert status == 200 and headers["Content-Type"].startswith(kind)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"") and b"https://" not in body
        assert b"innerHTML" not in body and b"style=" not in body


@pytest.mark.smoke
def test_views_show_what_clients_did(console: Console) -> None:
    found = console.ask("overview")
    assert [one["name"] for one in found["processes"]][:2] == ["supervisor", "acceptor"]
    assert found["brokers"][0]["is_this"] and found["brokers"][0]["is_controller"]
    rows = {row["name"]: row for row in console.ask("topics")["rows"]}
    assert rows["orders"]["records"] == 120
    assert console.ask("topic", name="orders")["rows"][0]["end"] == 120

    def lag() -> Any:
        return [row for row in console.ask("groups")["rows"] if row["lag"] == 100]

    wait_until(lag, 20, "the console has read the group's offset")
    assert [row["name"] for row in lag()] == [GROUP]
    assert console.ask("group", name=GROUP)["rows"][0]["committed"] == 20


def test_messages_are_read_by_offset_time_and_key(console: Console) -> None:
    newest = console.ask("messages", topic="orders", limit=3)
    assert [row["offset"] for row in newest["rows"]] == [117, 118, 119]
    assert (newest["first"], newest["end"], newest["next"]) == (0, 120, 120)
    some = console.ask("messages", topic="orders", offset=7, limit=2)
    assert [row["offset"] for row in some["rows"]] == [7, 8] and some["next"] == 9
    assert json.loads(some["rows"][0]["value"]["text"]) == {"order": 7, "note": MARKUP, "total": 87.5}
    assert some["rows"][0]["headers"] == [{"name": "trace", "value": MARKUP}]
    since = console.ask("messages", topic="orders", time=newest["rows"][0]["timestamp"])
    assert since["rows"][-1]["offset"] == 119 and since["from"] <= 117
    late = console.ask("messages", topic="orders", time=newest["rows"][-1]["timestamp"] + 1)
    assert late["rows"] == [] and late["from"] == 120
    keyed = console.ask("messages", topic="orders", offset=0, key="customer-11")
    assert [row["offset"] for row in keyed["rows"]] == [11, *range(110, 120)]


def test_messages_are_decoded(console: Console) -> None:
    row = console.ask("messages", topic="payments", format="auto")["rows"][0]
    assert (row["key"]["as"], row["key"]["text"], row["value"]["as"]) == ("text", MARKUP, "hex")
    assert console.ask("messages", topic="clicks")["rows"][0]["value"] is None


@pytest.mark.parametrize(
    ("parameters", "status", "line"),
    [
        ({"topic": "orders", "partition": "x"}, 400, "partition=x: must be a number"),
        ({"topic": "orders", "limit": 201}, 400, "limit=201: must be a number from 1 to 200"),
        ({"topic": "orders", "format": "xml"}, 400, "format=xml: must be one of auto, text, json, avro, hex"),
        ({}, 400, "topic: name the topic to read"),
        ({"topic": "nothing"}, 502, "cannot read nothing-0: UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": MARKUP}, 502, f"cannot read {MARKUP}-0: "),
    ],
)
def test_a_wrong_request_gets_one_line(console: Console, parameters: Any, status: int, line: str) -> None:
    answer = console.ask("messages", **parameters)
    assert answer[0] == status and answer[1].startswith(line) and "\n" not in answer[1]


def test_only_gets_of_this_machine_are_answered(console: Console) -> None:
    assert console.get("/api/topics", {"Host": "evil.example"})[0] == 403
    assert console.get("/api/topics", {"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert console.get("/api/topics", method="POST")[0] == 405
    assert console.get("/../../etc/passwd")[0] == 404


def test_settings_say_where_they_come_from(console: Console) -> None:
    rows = {row["name"]: row for row in console.ask("settings", filter="odradek.console")["rows"]}
    assert rows["odradek.console.listener"]["source"] == "server.properties"
    assert rows["odradek.console.command.config"]["source"] == "default"


def test_secrets_are_not_shown(fresh_broker: Callable[..., Broker]) -> None:
    broker = fresh_broker(start=False, ssl_keystore_password="geheim", password_encoder_secret="geheim")
    with_console(broker)
    console = started(broker, str(broker.properties["odradek.console.listener"]))
    _, body, _ = console.get("/api/settings?filter=password")
    assert b"geheim" not in body and b"[hidden]" in body


def with_console(broker: Broker, **overrides: object) -> None:
    broker.set(odradek_console_listener=f"127.0.0.1:{free_port()}", **overrides)


def test_messages_need_a_user_where_there_are_acls(fresh_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """Without one there are none; with one, those that it may read."""
    broker = fresh_broker(start=False, authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")
    with_console(broker)
    console = started(broker, str(broker.properties["odradek.console.listener"]))
    fill(broker)
    status, line = console.ask("messages", topic="orders")
    assert status == 403 and "odradek.console.command.config" in line and "\n" not in line
    assert console.ask("topics")["total"] >= 3
    broker.stop()
    user = tmp_path / "console.properties"
    user.write_text("security.protocol=PLAINTEXT\n")
    broker.set(odradek_console_command_config=user)
    console = started(broker, console.address)
    assert len(console.ask("messages", topic="orders", limit=5)["rows"]) == 5
    broker.stop()
    broker.set(super_users="User:admin")
    console = started(broker, console.address)
    status, line = console.ask("messages", topic="orders")
    assert status == 403 and line.startswith("the console's user may not read orders: give it Read and Describe")


def test_a_missing_properties_file_is_named(fresh_broker: Callable[..., Broker], tmp_path: Path) -> None:
    broker = fresh_broker(start=False)
    with_console(broker, odradek_console_command_config=tmp_path / "none")
    console = started(broker, str(broker.properties["odradek.console.listener"]))
    status, line = console.ask("messages", topic="orders")
    assert status == 502 and line.startswith("odradek.console.command.config: ") and str(tmp_path / "none") in line


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("0.0.0.0:9405", "odradek.console.listener=0.0.0.0:9405 has https and asks for users: "),
        ("9405", "must be host:port"),
    ],
)
def test_an_address_that_cannot_be_served_ends_the_start(
    fresh_broker: Callable[..., Broker], value: str, line: str
) -> None:
    broker = fresh_broker(start=False)
    broker.folder.mkdir(parents=True, exist_ok=True)
    done = broker.command("start", "--override", f"odradek.console.listener={value}")
    assert done.returncode == 3
    (found,) = [text for text in done.stderr.splitlines() if "odradek.console.listener" in text]
    assert line in found


def test_an_address_in_use_is_logged_and_retried(fresh_broker: Callable[..., Broker]) -> None:
    """Metrics are served meanwhile."""
    broker = fresh_broker(start=False)
    metrics = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        broker.set(odradek_console_listener=address, odradek_metrics_listener=metrics)
        broker.start()
        assert answers(broker.bootstrap)
        said = f"cannot serve the console at odradek.console.listener={address}"
        wait_until(lambda: said in broker.log, 30, "the exporter says so")
        wait_until(lambda: Console(broker, metrics).get("/metrics")[0] == 200, 30, "metrics are served")
    wait_until(lambda: f"serving the console at http://{address}/" in broker.log, 30, "the console is served")
    assert broker.log.count(said) == 1


def test_messages_are_read_as_the_user_of_the_file(tmp_path: Path) -> None:
    """By TLS and SCRAM, at the listener that the file's security.protocol names."""
    broker = SecuredBroker.of_every_mechanism(tmp_path / "secured")
    with_console(broker)
    try:
        console = started(broker, str(broker.properties["odradek.console.listener"]))
        way = Way("SASL_SSL", "SCRAM-SHA-512")
        wire, topic = broker.authenticated("SASL_SSL"), create_topic(broker, "secured")
        assert produce(wire, topic, batch([b"seen"])).error_code == 0
        wire.close()
        broker.stop()
        user = tmp_path / "console.properties"
        user.write_text("".join(f"{key}={value}\n" for key, value in client_settings.java(broker, way).items()))
        user.chmod(0o600)
        broker.set(odradek_console_command_config=user)
        console = started(broker, console.address)
        found = console.ask("messages", topic=topic)
        assert isinstance(found, dict), found
        assert found["rows"][0]["value"]["text"] == "seen"
        assert f"authenticated as {way.principal}" in broker.log
    finally:
        broker.close()


@pytest.mark.needs("java-3.9.1")
def test_settings_that_differ_between_brokers_are_shown(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Cluster(tmp_path, brokers=2) as cluster:
        cluster.restart(1, odradek_console_listener=address, log_retention_hours=7)
        console = Console(cluster.broker(1), address)
        wait_until(console.answers, 60, "the console answers")
        wait_until(lambda: len(console.ask("overview")["brokers"]) == 2, 60, "the console knows both brokers")
        found = console.ask("differences")
        rows = {row["name"]: row["values"] for row in found["rows"]}
        assert (found["brokers"], found["failed"]) == ([0, 1], {})
        default, changed = {"value": "168", "source": "default"}, {"value": "7", "source": "server.properties"}
        assert rows["log.retention.hours"] == [default, changed]
        assert "log.segment.bytes" not in rows
