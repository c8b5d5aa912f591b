"""What a broker registers: the endpoints that it advertises, and whom a standalone broker admits there."""

from __future__ import annotations

import time

from odradek.broker import listeners
from odradek.broker.config import BrokerConfig
from odradek.cluster.configs import admitted
from odradek.cluster.configs.admitted import Admitted
from odradek.cluster.tree import znodes

Endpoints = tuple[dict[str, tuple[str, int]], dict[str, str]]


def advertised(config: BrokerConfig) -> Endpoints:
    """The advertised endpoints by listener name, and each listener's security protocol."""
    endpoints = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in config.advertised}
    protocols = config.protocols
    return endpoints, {name: protocols[name] for name in endpoints}


def encoded(config: BrokerConfig) -> bytes:
    """The data for `/brokers/ids/<n>`."""
    now_ms = time.time_ns() // 1_000_000
    return znodes.encode_broker(*advertised(config), config["broker.rack"], now_ms, config.between_brokers)


def admitted_alone(config: BrokerConfig) -> Admitted:
    """A standalone broker admits inter-broker requests from its own addresses and from the configured ones."""
    own = [endpoint.host for endpoint in config.advertised if listeners.literal(endpoint.host)]
    return Admitted(config.between_brokers, own, admitted.parse_allowed(config[admitted.ALLOWED]))
