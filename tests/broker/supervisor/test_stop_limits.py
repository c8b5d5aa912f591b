"""With any configuration, a process that waits for another process's end waits longer than that may take."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig
from odradek.broker.supervisor import stop_limits, systemd_units
from odradek.ipc import roles
from odradek.systemd import render


def settings(**given: object) -> BrokerConfig:
    return configuration.resolve({name.replace("_", "."): str(value) for name, value in given.items()})


CONFIGS = st.fixed_dictionaries(
    {
        "odradek_drain_timeout_ms": st.integers(0, 600_000),
        "controlled_shutdown_max_retries": st.integers(0, 20),
        "controlled_shutdown_retry_backoff_ms": st.integers(1, 60_000),
    }
).map(lambda found: settings(**found))


@given(CONFIGS)
def test_each_limit_is_longer_than_what_it_limits(config: BrokerConfig) -> None:
    for stage in stop_limits.stages(config):
        assert stage.own_s + stop_limits.MARGIN_S <= stage.limit_s
        assert stage.limit_s + stop_limits.MARGIN_S <= stage.unit_s
    worker = stop_limits.stage_of(roles.FIRST_WORKER, config)
    assert worker.own_s >= config["odradek.drain.timeout.ms"] / 1000, "workers.worker drains for as long itself"
    retries = config["controlled.shutdown.max.retries"]
    tries_s = (retries + 1) * stop_limits.ANSWER_S + retries * config["controlled.shutdown.retry.backoff.ms"] / 1000
    assert tries_s + stop_limits.MARGIN_S <= stop_limits.departure_s(config)
    assert stop_limits.departure_s(config) + stop_limits.MARGIN_S <= stop_limits.departure_unit_s(config)


@given(CONFIGS)
def test_a_whole_stop_is_the_sum_of_its_stages(config: BrokerConfig) -> None:
    sum_s = sum(stage.limit_s for stage in stop_limits.stages(config))
    assert stop_limits.whole_s(config) == sum_s
    clustered = settings(**{name: config[name.replace("_", ".")] for name in _NAMES}, zookeeper_connect="z:2181")
    assert stop_limits.whole_s(clustered) == sum_s + stop_limits.departure_s(clustered)


_NAMES = ("odradek_drain_timeout_ms", "controlled_shutdown_max_retries", "controlled_shutdown_retry_backoff_ms")


def test_every_role_has_its_stage() -> None:
    config = settings()
    found = [role for stage in stop_limits.stages(config) for role in stage.roles]
    assert sorted(found) == sorted(
        {*roles.BY_NAME.values(), *range(roles.FIRST_WORKER, roles.ROLES)} - {roles.SUPERVISOR}
    )


def test_without_a_controlled_shutdown_nothing_is_waited_for() -> None:
    config = settings(controlled_shutdown_enable="false", controlled_shutdown_max_retries=50)
    assert stop_limits.departure_s(config) == stop_limits.MARGIN_S


@pytest.mark.parametrize("drain_ms", [0, 30_000, 300_000])
def test_the_units_say_so(drain_ms: int) -> None:
    config = settings(odradek_drain_timeout_ms=drain_ms, listeners="PLAINTEXT://127.0.0.1:9092")
    found = render.files(systemd_units.machine_of(config, "odradek"))

    def limit(name: str) -> float:
        (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", found[f"etc/systemd/system/odradek-{name}.service"], re.M)
        return float(seconds)

    named = {"worker@": roles.FIRST_WORKER, "controller": roles.CONTROLLER, "coordinator": roles.COORDINATOR}
    named |= {"janitor": roles.JANITOR, "replicator": roles.REPLICATOR, "acceptor": roles.ACCEPTOR}
    named["exporter"] = roles.EXPORTER
    for name, role in named.items():
        assert limit(name) >= stop_limits.stage_of(role, config).limit_s + stop_limits.MARGIN_S, name
    assert limit("cluster") >= stop_limits.departure_s(config) + stop_limits.MARGIN_S
