"""Shared by AlterConfigs and IncrementalAlterConfigs: checks and changes the resources of a request one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.cluster.configs import adopted_configs, configdef
from odradek.cluster.decisions import alter
from odradek.cluster.decisions.alter import ConfigChange
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller, attempt, refuse_duplicate, twice
from odradek.workers.dispatch.context import Context


class Resource(NamedTuple):
    """One resource of a request and its changes; `replace` drops every config that is not named."""

    type: int
    name: str
    changes: Sequence[ConfigChange]
    replace: bool


def handle(
    controller: Controller, response_name: str, request: Any, made: Callable[[Any], Resource], context: Context
) -> Iterator[None]:
    """Change each resource, in steps, and answer when every live worker has the new configs.

    `made`: converts a resource of the request.
    """
    repeated = twice((resource.resource_type, resource.resource_name) for resource in request.resources)
    yield
    response = message_class(response_name)
    results = []
    for resource in map(made, request.resources):
        yield  # a resource may have very many configs
        code, message = attempt(_action(controller, resource, repeated, request.validate_only))
        results.append(
            response.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
        )
        yield
    controller.when_published(lambda: context.reply(response(responses=results)))


def _action(controller: Controller, resource: Resource, repeated: set[Any], validate_only: bool) -> Callable[[], None]:
    def action() -> None:
        if (resource.type, resource.name) in repeated:
            raise refuse_duplicate("Each resource must appear at most once.")
        alter.check_changes(resource.changes)
        changer = _CHANGERS.get(resource.type)
        if changer is None or (resource.type == alter.BROKER_LOGGER and resource.replace):
            raise ApiError(INVALID_REQUEST, f"Unknown resource type {resource.type}")
        changer(controller, resource, validate_only)

    return action


def _changed(current: Mapping[str, str], resource: Resource, table: Any) -> dict[str, str]:
    return alter.apply_changes({} if resource.replace else current, resource.changes, table)


def _topic(controller: Controller, resource: Resource, validate_only: bool) -> None:
    if not resource.name:
        raise ApiError(INVALID_REQUEST, "Default topic resources are not allowed.")
    topic = controller.snapshot.topics.get(resource.name)
    former = {} if topic is None else topic.config
    changed = _changed(former, resource, configdef.TOPIC)
    if topic is None:
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    configs = adopted_configs.altered(former, changed, [change.name for change in resource.changes])
    alter.validate_topic(configs, controller.snapshot)
    if not validate_only:
        controller.owner.set_topic_config(resource.name, configs)


def _broker(controller: Controller, resource: Resource, validate_only: bool) -> None:
    snapshot = controller.snapshot
    broker = alter.broker_of(resource.name, snapshot.brokers)
    former = snapshot.dynamic_config(broker)
    configs = _changed(former, resource, configdef.BROKER)
    alter.validate_broker(former, configs, broker is not None)
    _check_together(controller, broker, configs)
    if not validate_only:
        controller.owner.set_broker_config(broker, configs)


def _check_together(controller: Controller, broker: int | None, configs: Mapping[str, str]) -> None:
    """Check the configs in force on the broker concerned; for a cluster-wide default, on this broker."""
    snapshot = controller.snapshot
    whose = controller.config["broker.id"] if broker is None else broker
    own, default = snapshot.dynamic_layers(whose)
    changed = configdef.in_force(configs)
    after = (own, changed) if broker is None else (changed, default)
    alter.validate_together((own, default), after, controller.config)


def _logger(controller: Controller, resource: Resource, validate_only: bool) -> None:
    raise ApiError(INVALID_REQUEST, "Log levels cannot be changed by this request yet.")


_CHANGERS: dict[int, Callable[[Controller, Resource, bool], None]] = {
    alter.TOPIC: _topic,
    alter.BROKER: _broker,
    alter.BROKER_LOGGER: _logger,
}
