"""Log levels by IncrementalAlterConfigs and DescribeConfigs (KIP-412), also with Kafka's own tool."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.protocol import interbroker

from ..harness import java
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire
from .raw.any_api import request

pytestmark = pytest.mark.live

BROKER_LOGGER, SET, DELETE = 8, 0, 1
INVALID_CONFIG, INVALID_REQUEST = 40, 42
LOGGER = "odradek.workers.worker"  # each connection is a line of it at DEBUG


def alter(wire: Wire, levels: dict[str, str | None], broker: str = "0", validate_only: bool = False) -> int:
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource
    configs = [
        row.AlterableConfig(name=name, config_operation=DELETE if level is None else SET, value=level)
        for name, level in levels.items()
    ]
    changed = row(resource_type=BROKER_LOGGER, resource_name=broker, configs=configs)
    answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=validate_only))
    return int(answer.responses[0].error_code)


def described(wire: Wire) -> dict[str, str]:
    row = interbroker.message_class("DescribeConfigsRequest").DescribeConfigsResource
    rows = [row(resource_type=BROKER_LOGGER, resource_name="0", configuration_keys=None)]
    (found,) = wire.call(request("DescribeConfigs", 1, resources=rows, include_synonyms=False)).results
    assert found.error_code == 0
    return {one.name: one.value for one in found.configs}


def test_levels_are_set_in_every_process_and_removed(fresh_broker: Callable[..., Broker]) -> None:
    broker = fresh_broker(odradek_workers=2)
    with broker.wire() as wire:
        assert described(wire).items() >= {LOGGER: "INFO", "root": "INFO"}.items()
        assert alter(wire, {LOGGER: "DEBUG"}, validate_only=True) == 0
        assert alter(wire, {LOGGER: "DEBUG", "odradek.storage": "ERROR"}) == 0
        wait_until(lambda: described(wire).items() >= {LOGGER: "DEBUG", "odradek.storage": "ERROR"}.items(), 20, "set")
        with ExitStack() as several:  # the acceptor spreads them
            for _ in range(4):
                several.enter_context(broker.wire())
            wait_until(lambda: all(f"DEBUG worker-{n} {LOGGER}" in broker.log for n in (0, 1)), 20, "lines of both")
        assert alter(wire, {"root": "WARN", LOGGER: None}) == 0
        wait_until(lambda: described(wire).items() >= {LOGGER: "WARN", "root": "WARN"}.items(), 20, "removed")
        assert described(wire)["odradek.storage"] == "ERROR"


@pytest.mark.parametrize(
    ("levels", "name", "code"),
    [
        ({"kafka.server.KafkaApis": "INFO"}, "0", INVALID_CONFIG),
        ({"os": "INFO"}, "0", INVALID_CONFIG),
        ({"odradek..workers": "INFO"}, "0", INVALID_CONFIG),
        ({"odradek.broker.__main__.x": "INFO"}, "0", INVALID_CONFIG),  # to look for it, importlib runs `odradek`
        ({"odradek." + "a" * 30_000: "INFO"}, "0", INVALID_CONFIG),
        ({LOGGER: "DEBUG", "odradek": "LOUD"}, "0", INVALID_CONFIG),
        ({"root": None}, "0", INVALID_REQUEST),
        ({LOGGER: "DEBUG"}, "1", INVALID_REQUEST),
        ({LOGGER: "DEBUG"}, "", INVALID_REQUEST),
    ],
)
def test_refused_levels_change_nothing(broker: Any, levels: dict[str, str | None], name: str, code: int) -> None:
    with broker.wire() as wire:
        before, controller = described(wire), broker.pids("controller")
        assert alter(wire, levels, name) == code
        assert described(wire) == before
        assert broker.pids("controller") == controller


@pytest.mark.needs("java-3.9.1")
def test_kafkas_tool_sets_and_removes_a_level(broker: Any) -> None:
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--entity-type", "broker-loggers")

    def run(*words: str) -> str:
        return java.run("3.9.1", *tool, "--entity-name", "0", *words).stdout.decode()

    assert "Completed updating config for broker-logger 0" in run("--alter", "--add-config", f"{LOGGER}=DEBUG")
    assert f"{LOGGER}=DEBUG" in run("--describe")
    run("--alter", "--delete-config", LOGGER)
    assert f"{LOGGER}=INFO" in run("--describe")
