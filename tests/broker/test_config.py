"""From server.properties and overrides to a BrokerConfig, and a round trip through config.json."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig, InvalidConfig
from odradek.broker.coordinator.transaction_coordinator import transaction_config
from odradek.broker.errors import FATAL_BOOT
from odradek.broker.listeners import Endpoint, between_brokers
from odradek.cluster.configs import configdef

CLEANUPS = ("abort.timed.out", "remove.expired")


def resolve(**given: str) -> BrokerConfig:
    """`log_dirs` stands for `log.dirs`."""
    return configuration.resolve({"log.dirs": "d", **{key.replace("_", "."): value for key, value in given.items()}})


def test_defaults_without_a_file() -> None:
    config = configuration.load(None)
    assert config.listeners == config.advertised == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.log_dirs == (os.path.abspath("data"),)
    assert config.workers == (os.cpu_count() or 1)
    assert config["log.segment.bytes"] == 1 << 30
    assert config.warnings == ()


def test_what_the_transaction_coordinator_reads() -> None:
    given = {"transaction.max.timeout.ms": 1, "transactional.id.expiration.ms": 2}
    given |= {f"transaction.{what}.transaction.cleanup.interval.ms": at for at, what in enumerate(CLEANUPS, 3)}
    config = configuration.resolve({"log.dirs": "d", **{key: str(value) for key, value in given.items()}})
    assert transaction_config(config)[:4] == (1, 2, 3, 4)


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nlog.dirs=/a,/b\nnum.partitions=3\n")
    config = configuration.load(path, ["num.partitions=5", "log.dirs=/c = d"])
    assert (config["broker.id"], config["num.partitions"]) == (1, 5)
    assert config.log_dirs == ("/c = d",)


def test_kafkas_own_example_file_loads(tmp_path: Path) -> None:
    """Loads the settings of the server.properties that Kafka 3.9 ships."""
    path = tmp_path / "server.properties"
    path.write_text(
        "broker.id=0\nnum.network.threads=3\nnum.io.threads=8\nsocket.send.buffer.bytes=102400\n"
        "socket.receive.buffer.bytes=102400\nsocket.request.max.bytes=104857600\nlog.dirs=/tmp/kafka-logs\n"
        "num.partitions=1\nnum.recovery.threads.per.data.dir=1\noffsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.retention.hours=168\n"
        "log.retention.check.interval.ms=300000\nzookeeper.connect=localhost:2181\n"
        "zookeeper.connection.timeout.ms=18000\ngroup.initial.rebalance.delay.ms=0\n"
    )
    config = configuration.load(path)
    assert config.warnings == (
        "known from Kafka, but without effect in this broker: num.io.threads, num.network.threads, "
        "num.recovery.threads.per.data.dir",
    )
    assert config.clustered


def test_kraft_example_serves_only_the_broker_listener() -> None:
    config = resolve(
        process_roles="broker,controller",
        node_id="7",
        controller_listener_names="CONTROLLER",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        advertised_listeners="PLAINTEXT://localhost:9092",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    )
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092),)
    assert config["broker.id"] == 7


@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_each_of_the_two_names_of_the_number_is_the_other(name: str) -> None:
    config = configuration.resolve({"log.dirs": "d", name: "7"})
    for each in ("broker.id", "node.id"):
        assert (config[each], config.originals[each]) == (7, "7")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"port": "1234"}, "PLAINTEXT://127.0.0.1:1234"),
        ({"host.name": "h"}, "PLAINTEXT://h:9092"),
        ({"host.name": "::1", "port": "0"}, "PLAINTEXT://[::1]:0"),
        ({"host.name": "h", "port": "1", "listeners": "PLAINTEXT://g:2"}, "PLAINTEXT://g:2"),
    ],
)
def test_old_listener_names(given: dict[str, str], expected: str) -> None:
    config = configuration.resolve({"log.dirs": "d", **given})
    assert [str(endpoint) for endpoint in config.listeners] == [expected]
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "PLAINTEXT"),
        ({"inter.broker.listener.name": "out"}, "OUT"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "PLAINTEXT"),
    ],
)
def test_the_listener_between_brokers(given: dict[str, str], expected: str) -> None:
    protocols = {"listener.security.protocol.map": "OUT:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    names = {"listeners": "OUT://h:1,PLAINTEXT://h:2", **protocols}
    assert between_brokers(configuration.resolve({"log.dirs": "d", **names, **given})) == expected


def test_old_advertised_names() -> None:
    config = configuration.resolve(
        {"log.dirs": "d", "listeners": "PLAINTEXT://:1", "advertised.host.name": "pub", "advertised.port": "2"}
    )
    assert config.advertised == (Endpoint("PLAINTEXT", "pub", 2),)


def test_log_dir_and_log_dirs() -> None:
    assert configuration.resolve({"log.dir": "/a"}).log_dirs == ("/a",)
    assert configuration.resolve({"log.dir": "/a", "log.dirs": "/b,/c"}).log_dirs == ("/b", "/c")
    assert configuration.resolve({}).log_dirs == ("/tmp/kafka-logs",)


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.ms": "-5"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_precedence(given: dict[str, str], ms: int) -> None:
    config = configuration.resolve({"log.dirs": "d", **given})
    assert configdef.resolve_topic({}, (), config)["retention.ms"] == ms


def test_unknown_key_is_a_warning_with_the_nearest() -> None:
    config = resolve(log_retention_hour="1", utterly_unheard_of="2")
    assert config.warnings[0] == "unknown setting log.retention.hour: ignored (did you mean log.retention.hours?)"
    assert config.warnings[1].startswith("unknown setting utterly.unheard.of: ignored")


def test_settings_without_effect_are_one_warning() -> None:
    given = {
        "num.io.threads": "8", "listener.name.in.ssl.provider": "x",
        "listener.name.in.max.connections": "5", "log.retention.hours": "2", "message.format": "1",
    }  # fmt: skip
    unknown, idle = configuration.resolve({"log.dirs": "d", **given}).warnings
    assert unknown.startswith("unknown setting message.format: ignored")
    assert idle == (
        "known from Kafka, but without effect in this broker: listener.name.in.ssl.provider, num.io.threads"
    )


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (
            "authorizer.class.name",
            "com.example.Mine",
            "must be empty or one of kafka.security.authorizer.AclAuthorizer",
        ),
        ("super.users", "User:a;bob", "TYPE:NAME.*a semicolon separates principals"),
        ("allow.everyone.if.no.acl.found", "yes", "true or false"),
    ],
)
def test_settings_of_the_authorizer_are_checked(key: str, value: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=f"(?s)configuration {key}: .*{says}") as refused:
        configuration.resolve({"log.dirs": "d", key: value})
    assert "\n" not in str(refused.value)


def test_numbers_of_brokers_in_a_cluster() -> None:
    """Kafka's rule; a single broker assigns no node ids."""
    cluster = {"log.dirs": "d", "zookeeper.connect": "z:1"}
    refused = (
        ({"broker.id": "1001"}, "reserved.broker.max.id"),
        ({"broker.id.generation.enable": "false"}, "must be set"),
    )
    for given, message in refused:
        with pytest.raises(InvalidConfig, match=message):
            configuration.resolve({**cluster, **given})
    for given in ({}, {"broker.id": "1000"}, {"broker.id": "1001", "broker.id.generation.enable": "false"}):
        configuration.resolve({**cluster, **given})
    configuration.resolve({"log.dirs": "d", "broker.id": "1001"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num.partitions": "many"}, "num.partitions"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"log.roll.ms": "0"}, "log.roll.ms"),
        ({"broker.id": "-2"}, "broker.id"),
        ({"broker.id": "1", "node.id": "2"}, "node.id and broker.id"),
        ({"num.partitions": "1\n2"}, r"^Invalid value 1\\n2 for configuration num.partitions: [^\n]*$"),
        ({"node.id": "x"}, "^Invalid value x for configuration node.id: [^\n]*$"),
        ({"log.dirs": "/a\0b"}, "log.dirs: must not contain NUL"),
        ({"odradek.workers": "65"}, "odradek.workers"),
        ({"port": "http"}, "port"),
        ({"listeners": "SSL://:9093"}, "PLAINTEXT is not one of the advertised listeners: SSL"),
        ({"listeners": "A://:1"}, "add A:PLAINTEXT"),
        ({"log.dirs": "/a,/b/../a"}, "twice"),
        *(
            ({"zookeeper.connect": bad}, "zookeeper.connect")
            for bad in ("/chroot", "a,,b", "a:x", "a:65536", ":1", "a b:1")
        ),
        ({"log.dirs": " , "}, "at least one directory"),
        ({"log.dirs": "", "log.dir": "d"}, "at least one directory"),
        ({"inter.broker.listener.name": "X"}, "X is not one of"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol: SSL is not one of"),
        ({"listeners": " "}, "listeners: at least one is needed"),
        ({"advertised.listeners": ""}, "advertised.listeners: at least one is needed"),
        (
            {"listeners": "IN://h:1", "listener.security.protocol.map": "IN:PLAINTEXT"},
            "inter.broker.listener.name: PLAINTEXT is not one of the advertised listeners: IN",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "set only one",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "log.cleaner.max.compaction.lag.ms must be at least",
        ),
        ({"offsets.topic.compression.codec": "5"}, "offsets.topic.compression.codec"),
        ({"offsets.commit.required.acks": "4"}, "must be -1 to offsets.topic.replication.factor, 3"),
        ({"offsets.commit.required.acks": "-2"}, "offsets.commit.required.acks"),
        ({"queued.max.request.bytes": "1000"}, "at least socket.request.max.bytes"),
        ({"group.consumer.session.timeout.ms": "44999"}, "group.consumer.session.timeout.ms must be"),
        ({"group.share.max.heartbeat.interval.ms": "4999"}, "group.share.heartbeat.interval.ms must be"),
        ({"group.share.record.lock.duration.ms": "1000"}, "group.share.record.lock.duration.ms must be"),
        ({"max.connections.per.ip.overrides": "x"}, "host:number"),
        ({"odradek.log.levels": "storage:DEBUG"}, "module=LEVEL"),
        ({"odradek.log.levels": "storage=LOUD"}, "the levels are"),
    ],
)
def test_bad_values(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message) as caught:
        configuration.resolve({"log.dirs": "d", **given})
    assert caught.value.exit_code == FATAL_BOOT


@pytest.mark.parametrize("good", ["", "a", "a:1,b:2", "[::1]:2181, b/chroot/of,mine", "10.0.0.1:2181/x"])
def test_servers_of_zookeeper(good: str) -> None:
    assert configuration.resolve({"log.dirs": "d", "zookeeper.connect": good}).clustered == bool(good)


def test_all_bad_values_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        resolve(num_partitions="x", log_segment_bytes="y")
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("text", ["x", "=1", " =1"])
def test_bad_override(text: str) -> None:
    with pytest.raises(InvalidConfig, match="key=value"):
        configuration.load(None, [text])


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        configuration.load(tmp_path / "nothing")


def test_ports_fill_listeners_and_advertised() -> None:
    config = resolve(listeners="PLAINTEXT://127.0.0.1:0").with_ports({"PLAINTEXT": 4711})
    assert config.listeners == config.advertised == (Endpoint("PLAINTEXT", "127.0.0.1", 4711),)


def test_saved_and_back(tmp_path: Path) -> None:
    config = resolve(num_partitions="3", listeners="PLAINTEXT://[::1]:1").with_value("broker.id", 5)
    config = config.with_clean([True]).with_value("odradek.run.dir", str(tmp_path))
    config.save(tmp_path)
    back = configuration.saved(tmp_path)
    assert dict(back) == dict(config)
    assert (back.listeners, back.advertised, back.log_dirs) == (config.listeners, config.advertised, config.log_dirs)
    assert (back.originals, back.clean, back["broker.id"]) == (config.originals, (True,), 5)
    assert stat.S_IMODE((tmp_path / "config.json").stat().st_mode) == 0o600


def test_nothing_saved(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no broker has started there"):
        configuration.saved(tmp_path)
