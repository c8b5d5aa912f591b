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
        *(f"    {command}{_client_properties(config)}" for command in _commands(_address(config))),
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
    """What clients may do without authentication, or, where all authenticate, with it."""
    anybody = [endpoint for endpoint in config.listeners if not _authenticates(config, endpoint.name)]
    authorized = bool(config["authorizer.class.name"])
    if not anybody:
        rights = "ACLs say what each may do" if authorized else "each may do everything (see authorizer.class.name)"
        return f"all clients authenticate; {rights}"
    if authorized:
        return f"clients of {_names(anybody)} are User:ANONYMOUS; ACLs say what each may do"
    if all(endpoint.is_loopback for endpoint in anybody):
        return f"{_names(anybody)}: without authentication, so only this machine can connect (see listeners)"
    reached = [endpoint for endpoint in anybody if not endpoint.is_loopback]
    return f"WARNING: any client that reaches {_names(reached)} can read and write everything (see SECURITY.md)"


def _authenticates(config: BrokerConfig, listener: str) -> bool:
    protocol = config.protocols[listener]
    if protocol != "SSL":
        return protocol != "PLAINTEXT"
    from odradek.security.tls.settings import listener_settings

    return listener_settings(config.originals, listener).client_auth == "required"


def _names(endpoints: list[Endpoint]) -> str:
    return ", ".join(map(str, endpoints))


def _address(config: BrokerConfig) -> str:
    plain = [endpoint for endpoint in config.listeners if config.protocols[endpoint.name] == "PLAINTEXT"]
    endpoint = (*plain, *config.listeners)[0]
    host = "localhost" if endpoint.is_any or endpoint.host == "127.0.0.1" else bracket(endpoint.host)
    return f"{host}:{endpoint.port}"


def _client_properties(config: BrokerConfig) -> str:
    return "" if "PLAINTEXT" in config.protocols.values() else " --command-config client.properties"


def _commands(address: str) -> list[str]:
    return [
        f"odradek topics --create --topic hello --partitions 3 --bootstrap-server {address}",
        f"echo 'hello, world' | odradek console-producer --topic hello --bootstrap-server {address}",
        f"odradek console-consumer --topic hello --from-beginning --bootstrap-server {address}",
    ]
