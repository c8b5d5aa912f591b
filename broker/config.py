"""The broker's configuration: `server.properties` and `--override key=value`, resolved once, then read-only.

`cluster.configs.configdef` has types, defaults, validators and the precedence of ms over minutes over hours. This
module handles old names, listeners, advertised listeners and the rules between keys. A bad value fails the start
before it changes anything; an unknown key causes a warning with the nearest known name.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.broker import listeners as listening
from odradek.broker import logs
from odradek.broker.errors import BootError
from odradek.broker.listeners import Endpoint, ListenerError
from odradek.ipc import rundir
from odradek.protocol import properties

log = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
_FORMAT = 1
DEFAULT_LISTENERS = "PLAINTEXT://127.0.0.1:9092"
DEFAULT_LOG_DIR = "data"
DEFAULT_PROTOCOL_MAP = ",".join(f"{name}:{name}" for name in listening.PROTOCOLS)

# What the warning about keys without effect adds for keys whose absence matters.
_INSTEAD = {
    "process.roles": "one process tree is broker and controller",
    "controller.quorum.voters": "there is no KRaft quorum; the embedded metadata store is used",
}

# Names of Kafka 0.8 that Kafka 3 dropped; only `_old_listener` and `_advertised` read them.
_OLD = ("port", "host.name", "advertised.host.name", "advertised.port")


# What the exporter process serves, each at an address of its own.
EXPORTED = ("odradek.metrics.listener", "odradek.console.listener")


class InvalidConfig(BootError):
    """Settings that cannot work; the text has one line for each, which says what to change."""


@dataclass(frozen=True, eq=False)
class BrokerConfig(Mapping[str, Any]):
    """Settings of one broker: `config["log.segment.bytes"]` is typed, None when unset without a default.

    `originals` is the configured text by key; keys that are not in it have their defaults."""

    typed: Mapping[str, Any]
    originals: Mapping[str, str]
    listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]
    warnings: tuple[str, ...] = field(default=())
    # Whether the previous run marked a clean shutdown, for each log directory; known once the broker starts.
    clean: tuple[bool, ...] = field(default=())
    # Whether an earlier version started this broker, with other role locks (broker.process.process).
    former_roles: bool = False
    # The dynamic configs of this broker that its listeners come from; see `with_dynamic`.
    dynamic: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.typed[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.typed)

    def __len__(self) -> int:
        return len(self.typed)

    @property
    def data_dir(self) -> str:
        """The first log directory: it identifies the broker, and holds the metadata of a standalone broker."""
        return self.log_dirs[0]

    @property
    def run_dir(self) -> Path:
        """The directory of this broker's sockets while it runs."""
        chosen = self.typed.get("odradek.run.dir")
        return Path(chosen) if chosen else rundir.run_dir(self.data_dir)

    @property
    def workers(self) -> int:
        """How many worker processes to start."""
        return int(self.typed["odradek.workers"])

    @property
    def protocols(self) -> dict[str, str]:
        """The security protocol of each listener."""
        known = _protocols({**self.originals, **self.dynamic})
        return {endpoint.name: known[endpoint.name] for endpoint in self.listeners}

    @property
    def between_brokers(self) -> str:
        """The name of the listener that brokers connect to."""
        return listening.between_brokers(self.originals)

    @property
    def clustered(self) -> bool:
        """Whether this broker is a member of a cluster on ZooKeeper; else it is standalone, on its embedded store."""
        return bool(self.typed["zookeeper.connect"])

    def warn(self) -> None:
        """Log the warnings, none of which fails the start."""
        for line in self.warnings:
            log.warning(line)

    def with_ports(self, ports: Mapping[str, int]) -> BrokerConfig:
        """A copy with each port 0 replaced by the bound one, in the advertised listeners too."""
        return self._replace(
            listeners=tuple(_bound(endpoint, ports) for endpoint in self.listeners),
            advertised=tuple(_bound(endpoint, ports) for endpoint in self.advertised),
        )

    def with_dynamic(self, own: Mapping[str, str]) -> BrokerConfig:
        """A copy with the listeners that the dynamic configs `own` of this broker set. Raises ListenerError.

        A port 0 is the one that is bound now, or stays 0 for a listener that is not.
        """
        from odradek.cluster.configs.configdef import LISTENERS

        dynamic = {key: own[key] for key in LISTENERS if key in own}
        originals = {**self.originals, **dynamic}
        endpoints = _listeners(originals)
        advertised = _advertised(originals, endpoints)
        changed = self._replace(listeners=tuple(endpoints), advertised=tuple(advertised), dynamic=dynamic)
        return changed.with_ports({endpoint.name: endpoint.port for endpoint in self.listeners})

    def without_listener(self, name: str) -> BrokerConfig:
        """A copy without one listener."""
        return self._replace(
            listeners=tuple(endpoint for endpoint in self.listeners if endpoint.name != name),
            advertised=tuple(endpoint for endpoint in self.advertised if endpoint.name != name),
        )

    def with_value(self, key: str, value: Any) -> BrokerConfig:
        """A copy with one resolved value replaced (`broker.id`, once it is known from the data directory)."""
        return self._replace(typed={**self.typed, key: value})

    def with_clean(self, clean: Iterable[bool]) -> BrokerConfig:
        """A copy that says which log directories a clean shutdown left."""
        return self._replace(clean=tuple(clean))

    def _replace(self, **changes: Any) -> BrokerConfig:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return BrokerConfig(**{**fields, **changes})

    def save(self, run_dir: Path) -> None:
        """Write `config.json` (0600) for the broker's other processes; they see the old file or the new."""
        document = {
            "format": _FORMAT,
            "typed": dict(self.typed),
            "originals": dict(self.originals),
            "listeners": self.listeners,
            "advertised": self.advertised,
            "log_dirs": self.log_dirs,
            "clean": self.clean,
            "former_roles": self.former_roles,
            "dynamic": dict(self.dynamic),
        }
        temporary = run_dir / f"{CONFIG_FILE}.new"
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(document))
        os.replace(temporary, run_dir / CONFIG_FILE)


def saved(run_dir: Path) -> BrokerConfig:
    """The configuration of the broker with this run directory. Raises InvalidConfig when there is none."""
    try:
        document = json.loads((run_dir / CONFIG_FILE).read_text())
    except FileNotFoundError:
        raise InvalidConfig(f"{run_dir} has no {CONFIG_FILE}: no broker has started there") from None
    if document["format"] != _FORMAT:
        raise InvalidConfig(
            f"{run_dir / CONFIG_FILE} was written by another version: stop the broker, then start this version"
        )
    config = BrokerConfig(
        typed=document["typed"],
        originals=document["originals"],
        listeners=tuple(Endpoint(*endpoint) for endpoint in document["listeners"]),
        advertised=tuple(Endpoint(*endpoint) for endpoint in document["advertised"]),
        log_dirs=tuple(document["log_dirs"]),
        clean=tuple(document["clean"]),
        former_roles=document.get("former_roles", True),
        dynamic=document.get("dynamic", {}),
    )
    return config if config.run_dir == run_dir else config.with_value("odradek.run.dir", str(run_dir))


def load(path: Path | None, overrides: Iterable[str] = ()) -> BrokerConfig:
    """Read a properties file (None: defaults for a try-out) and overrides. Raises InvalidConfig."""
    originals: dict[str, str] = {}
    if path is not None:
        try:
            originals = properties.load(path)
        except OSError as error:
            raise InvalidConfig(f"{path}: {error.strerror}") from None
        except properties.PropertiesError as error:
            raise InvalidConfig(str(error)) from None
    originals.update(_override(text) for text in overrides)
    if path is None and not {"log.dirs", "log.dir"} & originals.keys():
        originals["log.dirs"] = DEFAULT_LOG_DIR
    return resolve(originals)


def _override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidConfig(f"--override {text!r} is not of the form key=value")
    return key.strip(), value.strip()


def resolve(originals: Mapping[str, str]) -> BrokerConfig:
    """Parse every value and apply the rules between keys. Raises InvalidConfig with a line for each bad value."""
    from odradek.cluster.configs.configtypes import BLANKS

    originals = {key: value.strip(BLANKS) for key, value in originals.items()}
    values, warnings = _typed(originals)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name not in originals and other in originals:
            values[name], originals[name] = values[other], originals[other]
    if values["odradek.faults.file"]:
        warnings.append("odradek.faults.file is set: a program can make this broker fail; not for production")
    if not values.get("odradek.workers"):
        values["odradek.workers"] = os.cpu_count() or 1
    try:
        endpoints = _listeners(originals)
        advertised = _advertised(originals, endpoints)
    except ListenerError as error:
        raise InvalidConfig(str(error)) from None
    config = BrokerConfig(
        values, originals, tuple(endpoints), tuple(advertised), _log_dirs(values, originals), tuple(warnings)
    )
    _check(config)
    return config


def _typed(originals: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    from odradek.cluster.configs import configdef

    values = {name: configdef.broker_default(name) for name in configdef.BROKER}
    faults, warnings, idle = [], [], []
    for key, text in originals.items():
        row = configdef.broker_key(key)
        if row is None:
            warnings += [] if key in _OLD else [_unknown(key, configdef.nearest(key))]
            continue
        if not row.works:
            idle.append(key)
        try:
            values[key] = configdef.parse(key, text)
        except configdef.ConfigError as error:
            faults.append(str(error))
    if faults:
        raise InvalidConfig("\n".join(faults))
    return values, warnings + _without_effect(idle)


def _unknown(key: str, near: str | None) -> str:
    return f"unknown setting {key}: ignored" + (f" (did you mean {near}?)" if near else "")


def _without_effect(keys: list[str]) -> list[str]:
    """One line that names all keys that Kafka uses and this broker does not; no line without such keys."""
    named = [f"{key} ({_INSTEAD[key]})" if key in _INSTEAD else key for key in sorted(keys)]
    return [f"known from Kafka, but without effect in this broker: {', '.join(named)}"] if named else []


def _listeners(originals: Mapping[str, str]) -> list[Endpoint]:
    text = originals["listeners"] if "listeners" in originals else _old_listener(originals)
    endpoints = listening.parse_endpoints("listeners", text)
    elsewhere = {name.strip().upper() for name in originals.get("controller.listener.names", "").split(",")}
    served = [endpoint for endpoint in endpoints if endpoint.name not in elsewhere]
    listening.check_listeners(served, _protocols(originals))
    return served


def _protocols(originals: Mapping[str, str]) -> dict[str, str]:
    return listening.parse_protocol_map(originals.get("listener.security.protocol.map") or DEFAULT_PROTOCOL_MAP)


def _old_listener(originals: Mapping[str, str]) -> str:
    """`host.name` and `port` of Kafka 0.8. Without `host.name` it is loopback: no setting asks for more."""
    if not {"port", "host.name"} & originals.keys():
        return DEFAULT_LISTENERS
    host = originals.get("host.name", "127.0.0.1")
    port = _port("port", originals)
    return f"PLAINTEXT://{listening.bracket(host)}:{9092 if port is None else port}"


def _advertised(originals: Mapping[str, str], endpoints: list[Endpoint]) -> list[Endpoint]:
    if "advertised.listeners" in originals:
        advertised = listening.parse_endpoints("advertised.listeners", originals["advertised.listeners"])
    else:
        port = _port("advertised.port", originals) or 0
        advertised = listening.default_advertised(endpoints, originals.get("advertised.host.name", ""), port)
    listening.check_advertised(advertised, endpoints)
    _check_inter_broker(originals, advertised)
    return advertised


def _port(key: str, originals: Mapping[str, str]) -> int | None:
    """The number of an old port key; None when it is not set."""
    text = originals.get(key)
    if not text:
        return None
    if not text.isdecimal() or int(text) > 65535:
        raise ListenerError(f"{key}: {text!r} is not a port; it must be a number from 0 to 65535")
    return int(text)


def _check_inter_broker(originals: Mapping[str, str], advertised: list[Endpoint]) -> None:
    """A standalone broker needs that listener too, as in Kafka."""
    name, protocol = originals.get("inter.broker.listener.name"), originals.get("security.inter.broker.protocol")
    if name and protocol:
        raise ListenerError("inter.broker.listener.name and security.inter.broker.protocol: set only one of them")
    listener, names = listening.between_brokers(originals), [endpoint.name for endpoint in advertised]
    if listener not in names:
        key = "security.inter.broker.protocol" if protocol else "inter.broker.listener.name"
        raise ListenerError(f"{key}: {listener} is not one of the advertised listeners: {', '.join(names)}")


def _log_dirs(values: Mapping[str, Any], originals: Mapping[str, str]) -> tuple[str, ...]:
    text = originals["log.dirs"] if "log.dirs" in originals else originals.get("log.dir", values["log.dir"])
    folders = [os.path.abspath(part.strip()) for part in text.split(",") if part.strip()]
    if not folders:
        raise InvalidConfig("log.dirs: at least one directory is needed")
    if len({os.path.realpath(folder) for folder in folders}) < len(folders):
        raise InvalidConfig(f"log.dirs: a directory appears twice in {text!r}")
    return tuple(folders)


def _bound(endpoint: Endpoint, ports: Mapping[str, int]) -> Endpoint:
    return endpoint if endpoint.port else endpoint._replace(port=ports.get(endpoint.name, 0))


def _check(config: BrokerConfig) -> None:
    """The rules between values, Kafka's (`KafkaConfig.validateValues`) and ours."""
    from odradek.cluster.configs import broker_rules

    faults = broker_rules.broken((), config) + broker_rules.broken_at_start(config) + _broker_id(config)
    try:
        logs.parse_levels(config["odradek.log.levels"] or "")
    except ValueError as error:
        faults.append(str(error))
    if faults:
        raise InvalidConfig("\n".join(faults))


def _broker_id(config: BrokerConfig) -> list[str]:
    """Kafka's rule: a cluster generates ids above reserved.broker.max.id."""
    number, most = config["broker.id"], config["reserved.broker.max.id"]
    if "node.id" in config.originals and config["node.id"] != number:
        return [f"node.id and broker.id must be the same number, not {config['node.id']} and {number}"]
    if number < -1:
        return [f"broker.id must be 0 or above, not {number}"]
    if config.clustered and not config["broker.id.generation.enable"] and number < 0:
        return ["broker.id must be set, 0 or above, where broker.id.generation.enable is false"]
    if config.clustered and config["broker.id.generation.enable"] and number > most:
        return [f"broker.id must not be greater than reserved.broker.max.id, {most}: not {number}"]
    return []
