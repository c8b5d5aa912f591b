"""DescribeConfigs (key 32), versions 0 to 4: configs of topics, of this broker, of the cluster, log levels.

Resource types: topic 2, broker 4 (an empty name means the cluster-wide dynamic configs), broker logger 8. v0 marks
defaults by a flag, v1+ have sources and synonyms (KIP-226), v3+ types and documentation (KIP-569).
Client metrics and groups as resources (16, 32) are not supported and fail the whole request with INVALID_REQUEST.
A resource that is named twice is answered once: a broker's configs take 25 KB and a millisecond. Each resource is a
step (Services.begin).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.cluster.decisions import alter, alter_loggers, describe
from odradek.cluster.decisions.describe import ConfigEntry, StaticConfig
from odradek.cluster.rules import topicnames
from odradek.cluster.rules.errors import ApiError
from odradek.protocol import errors
from odradek.protocol.errors import INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import DESCRIBE_CONFIGS, config_refusal, config_resource
from odradek.workers.dispatch.context import Context

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services

_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}  # Python's names to log4j's
_ROOT = "odradek"


def handle(services: Services, request: Any, context: Context) -> Iterator[None]:
    response = message_class("DescribeConfigsResponse")
    unknown = next((resource for resource in request.resources if resource.resource_type not in _DESCRIBERS), None)
    if unknown is not None:
        context.reply(response(results=[_unexpected(unknown, resource) for resource in request.resources]))
        return
    once: dict[tuple[int, str | int], Any] = {}
    for resource in request.resources:
        once.setdefault(_key(resource), resource)
    results: list[Any] = []
    denied: list[Any] = []
    for resource in once.values():
        if context.allows(DESCRIBE_CONFIGS, *config_resource(resource.resource_type, resource.resource_name)):
            results.append(_resource(services, resource, request, context.version))
        else:
            denied.append(_denied(resource))
        yield
    results += denied  # last, as in Kafka
    context.reply(response(results=results))


def _key(resource: Any) -> tuple[int, str | int]:
    """A key that is equal for the same resource, in whatever way a broker's id is written."""
    if resource.resource_type in (alter.BROKER, alter.BROKER_LOGGER):
        with suppress(ValueError):
            return resource.resource_type, int(resource.resource_name)
    return resource.resource_type, resource.resource_name


def _unexpected(unknown: Any, resource: Any) -> Any:
    """The answer to each resource of a request that has one of an unknown type."""
    return message_class("DescribeConfigsResponse").DescribeConfigsResult(
        error_code=INVALID_REQUEST,
        error_message=f"Unexpected resource type {unknown.resource_type}",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _denied(resource: Any) -> Any:
    """The answer to a resource whose configs the client may not see."""
    return message_class("DescribeConfigsResponse").DescribeConfigsResult(
        error_code=config_refusal(resource.resource_type),
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _resource(services: Services, resource: Any, request: Any, version: int) -> Any:
    result = message_class("DescribeConfigsResponse").DescribeConfigsResult
    named: dict[str, Any] = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        entries = _entries(services, resource.resource_type, resource.resource_name)
    except ApiError as error:
        return result(error_code=error.code, error_message=error.message, configs=[], **named)
    synonyms = version >= 1 and request.include_synonyms
    docs = version >= 3 and request.include_documentation
    chosen = describe.chosen(entries, resource.configuration_keys)
    return result(error_code=errors.NONE, configs=[_config(entry, synonyms, docs) for entry in chosen], **named)


def _entries(services: Services, kind: int, name: str) -> list[ConfigEntry]:
    return _DESCRIBERS[kind](services, name)


def _topic(services: Services, name: str) -> list[ConfigEntry]:
    topicnames.validate(name)
    if name not in services.snapshot.topics:
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return describe.topic_entries(name, services.snapshot, services.config["broker.id"], _static(services))


def _static(services: Services) -> StaticConfig:
    return StaticConfig(services.config, getattr(services.config, "originals", {}))


def _broker(services: Services, name: str) -> list[ConfigEntry]:
    broker = alter.broker_of(name, services.snapshot.brokers)
    if broker is None:
        return describe.cluster_entries(services.snapshot)
    return describe.broker_entries(services.snapshot, broker, _static(services))


def _loggers(services: Services, name: str) -> list[ConfigEntry]:
    if alter.broker_of(name, services.snapshot.brokers) is None:
        raise ApiError(INVALID_REQUEST, "Broker id must not be empty")
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == _ROOT]
    return [_logger(alter_loggers.ROOT, _ROOT), *(_logger(name, name) for name in sorted(names))]


def _logger(name: str, logger: str) -> ConfigEntry:
    level = logging.getLevelName(logging.getLogger(logger).getEffectiveLevel())
    return ConfigEntry(name, _LEVELS.get(level, level), False, describe.BROKER_LOGGER, False, 0, "", ())


_DESCRIBERS: dict[int, Callable[[Services, str], list[ConfigEntry]]] = {
    alter.TOPIC: _topic,
    alter.BROKER: _broker,
    alter.BROKER_LOGGER: _loggers,
}


def _config(entry: ConfigEntry, synonyms: bool, docs: bool) -> Any:
    config = message_class("DescribeConfigsResponse").DescribeConfigsResult.DescribeConfigsResourceResult
    return config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_default=entry.source == describe.DEFAULT,
        is_sensitive=entry.sensitive,
        synonyms=[
            config.DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if docs else None,
    )


API = Api(key=32, name="DescribeConfigs", versions=(0, 4), handle=handle)
