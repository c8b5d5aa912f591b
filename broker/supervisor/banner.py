"""The one screen that `odradek start` prints once clients can connect."""

from __future__ import annotations

from odradek.broker.config import BrokerConfig
from odradek.broker.listeners import Endpoint, bracket


def banner(config: BrokerConfig, workers: int, seconds: float) -> str:
    """Listeners, number of workers, security, three commands to try."""
    lines = [
        f"Odradek is ready after {seconds:.1f} s: {_count(workers, 'worker')}, data in {', '.join(config.log_dirs)}",
        "",
        *(f"  listening on  {endpoint}{_advertised_as(config, endpoint)}" for endpoint in config.listeners),
        f"  security      {_security(config)}",
        "",
        "  try:",
        *(f"    {command}" for command in _commands(_address(config))),
        "",
        "  odradek status shows its processes, Ctrl-C (or odradek stop) stops it",
    ]
    return "\n".join(lines)


def ready_line(config: BrokerConfig) -> str:
    """One line for programs: READY and every listener with its real port."""
    return " ".join(["READY", *map(str, config.listeners)])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _advertised_as(config: BrokerConfig, endpoint: Endpoint) -> str:
    advertised = [other for other in config.advertised if other.name == endpoint.name]
    if advertised and advertised[0] != endpoint:
        return f"  (advertised as {bracket(advertised[0].host)}:{advertised[0].port})"
    return ""


def _security(config: BrokerConfig) -> str:
    if all(endpoint.is_loopback for endpoint in config.listeners):
        return "no authentication yet, so only this machine can connect (see `listeners`)"
    return "WARNING: no authentication yet; any client that reaches these addresses can read and write everything"


def _address(config: BrokerConfig) -> str:
    endpoint = config.listeners[0]
    host = "localhost" if endpoint.is_any or endpoint.host == "127.0.0.1" else bracket(endpoint.host)
    return f"{host}:{endpoint.port}"


def _commands(address: str) -> list[str]:
    return [
        f"odradek topics --create --topic hello --partitions 3 --bootstrap-server {address}",
        f"echo 'hello, world' | odradek console-producer --topic hello --bootstrap-server {address}",
        f"odradek console-consumer --topic hello --from-beginning --bootstrap-server {address}",
    ]
