"""Shared by AlterConfigs and IncrementalAlterConfigs: checks and changes the resources of a request one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from odradek.cluster.configs import adopted_configs, configdef, dynamic_passwords
from odradek.cluster.decisions import alter, alter_loggers
from odradek.cluster.decisions.alter import ConfigChange
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller, attempt, refuse_duplicate, twice
from odradek.workers.dispatch.authorization import ALTER_CONFIGS, config_refusal, config_resource
from odradek.workers.dispatch.context import Context

T = TypeVar("T")


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
        code, message = attempt(_action(controller, resource, repeated, request.validate_only, context))
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


def _action(
    controller: Controller, resource: Resource, repeated: set[Any], validate_only: bool, context: Context
) -> Callable[[], None]:  # fmt: skip
    def action() -> None:
        if (resource.type, resource.name) in repeated:
            raise refuse_duplicate("Each resource must appear at most once.")
        alter.check_changes(resource.changes)
        changer = _CHANGERS.get(resource.type)
        if changer is None or (resource.type == alter.BROKER_LOGGER and resource.replace):
            raise ApiError(INVALID_REQUEST, f"Unknown resource type {resource.type}")
        if not context.allows(ALTER_CONFIGS, *config_resource(resource.type, resource.name)):
            raise ApiError(config_refusal(resource.type), None)
        changer(controller, resource, validate_only)
        if not validate_only:
            names = ", ".join(change.name for change in resource.changes)
            context.changed(f"configs of {_TITLES[resource.type]} {resource.name or '<default>'}: {names}")

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
    passwords = _passwords(controller, broker, resource)
    _check_together(controller, broker, configs)
    changed = _changed_listeners(controller, broker, former, configs)
    _check_security(controller, broker, former, configs, passwords, changed)
    if changed is not None:
        _valid(lambda: controller.listeners.prepare(changed, not validate_only))
    if not validate_only:
        encoder = dynamic_passwords.encoder_of(controller.config)
        stored = dynamic_passwords.encoded(configs, passwords, encoder) if encoder is not None else configs
        controller.owner.set_broker_config(broker, stored)


def _passwords(controller: Controller, broker: int | None, resource: Resource) -> set[str]:
    """The passwords that a request sets, which only the broker that they are for can encode. ApiError."""
    names = {change.name for change in resource.changes if dynamic_passwords.is_password(change.name)}
    names -= {change.name for change in resource.changes if change.operation == alter.DELETE}
    if not names:
        return names
    listed = ", ".join(sorted(names))
    if broker is None:
        raise ApiError(INVALID_REQUEST, f"{listed}: passwords can be set only for one broker, not for all")
    if broker != controller.config["broker.id"]:
        raise ApiError(INVALID_REQUEST, f"{listed}: only broker {broker} can encode its passwords: send it the request")
    if dynamic_passwords.encoder_of(controller.config) is None:
        raise ApiError(
            INVALID_REQUEST,
            f"password.encoder.secret is not set, so {listed} cannot be stored: set it in server.properties and "
            "restart the broker",
        )
    return names


def _check_together(controller: Controller, broker: int | None, configs: Mapping[str, str]) -> None:
    """Check the configs in force on the broker concerned; for a cluster-wide default, on this broker."""
    snapshot = controller.snapshot
    whose = controller.config["broker.id"] if broker is None else broker
    own, default = snapshot.dynamic_layers(whose)
    changed = configdef.in_force(configs)
    after = (own, changed) if broker is None else (changed, default)
    alter.validate_together((own, default), after, controller.config)


def _changed_listeners(
    controller: Controller, broker: int | None, former: Mapping[str, str], configs: Mapping[str, str]
) -> Any:
    """This broker's configuration with changed listeners; None if they do not change. ApiError."""
    names = [name for name in configdef.LISTENERS if former.get(name) != configs.get(name)]
    if broker is None or not names:
        return None
    if broker != controller.config["broker.id"]:
        listed = ", ".join(names)
        raise ApiError(INVALID_REQUEST, f"{listed}: only broker {broker} can bind its ports: send it the request")
    return _valid(lambda: controller.listeners.changed(configs))


def _valid(action: Callable[[], T]) -> T:
    try:
        return action()
    except ValueError as error:
        raise ApiError(INVALID_REQUEST, str(error)) from error


def _check_security(
    controller: Controller,
    broker: int | None,
    former: Mapping[str, str],
    configs: Mapping[str, str],
    passwords: set[str],
    changed_listeners: Any,
) -> None:
    """Load the listeners with changed settings of TLS and SASL, or new ones: another broker's files are not here.

    `passwords`: those that are not encoded yet. `changed_listeners`: the configuration with these, if they change.
    """
    whose, config = controller.config["broker.id"], controller.listeners.config
    if broker not in (None, whose):
        return
    changed = {name for name in {**former, **configs} if former.get(name) != configs.get(name)} | passwords
    secures = any(map(configdef.secures, changed))
    protocols = dict(config.protocols) if secures else {}
    if changed_listeners is not None:
        there = changed_listeners.protocols
        protocols = {name: there[name] for name in there if secures or name not in config.protocols}
    elif secures and set(protocols.values()) == {"PLAINTEXT"} and not _for_later(changed):
        listed = ", ".join(sorted(changed))
        raise ApiError(INVALID_REQUEST, f"{listed}: no listener of this broker has TLS or SASL")
    if set(protocols.values()) <= {"PLAINTEXT"}:
        return
    from odradek.workers.authentication import listener_security

    own, default = controller.snapshot.dynamic_layers(whose)
    kept = {name: text for name, text in configs.items() if name not in passwords}
    layers = (kept, default) if broker is not None else (own, configs)
    settings = dynamic_passwords.settings(config.originals, *layers, dynamic_passwords.encoder_of(config))
    settings |= {name: configs[name] for name in passwords}
    faults = listener_security.faults(protocols, config.between_brokers, settings, time.time())
    if lines := list(faults):
        raise ApiError(INVALID_REQUEST, "; ".join(lines))
    try:
        controller.owner.check_link(settings)
    except ValueError as error:
        raise ApiError(INVALID_REQUEST, f"connections to other brokers: {error}") from None


def _for_later(names: set[str]) -> bool:
    """Whether these settings may be those of a listener that a later request adds."""
    return all(name.startswith("listener.name.") for name in names)


def _logger(controller: Controller, resource: Resource, validate_only: bool) -> None:
    alter_loggers.check_broker(resource.name, controller.config["broker.id"])
    alter_loggers.check(resource.changes, controller.has_logger)
    if not validate_only:
        controller.set_log_levels(alter_loggers.levels(resource.changes))


_TITLES = {alter.TOPIC: "topic", alter.BROKER: "broker", alter.BROKER_LOGGER: "broker logger"}
_CHANGERS: dict[int, Callable[[Controller, Resource, bool], None]] = {
    alter.TOPIC: _topic,
    alter.BROKER: _broker,
    alter.BROKER_LOGGER: _logger,
}
