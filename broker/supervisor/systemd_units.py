"""Installs systemd's units, written for this interpreter, this configuration and this machine."""

from __future__ import annotations

import importlib
import os
import pwd
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.broker import config as configuration
from odradek.broker.config import EXPORTED, BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.listeners import Endpoint, bracket
from odradek.broker.process import sockets
from odradek.broker.supervisor import stop_limits
from odradek.ipc import roles
from odradek.systemd import render
from odradek.systemd.render import Machine

SYSTEM_UIDS = 1000  # logind's SYS_UID_MAX is below this: it keeps the shared memory of system users
_PACKAGES = (
    "broker", "workers", "storage", "ipc", "protocol", "security", "cluster", "groups", "systemd", "pipeline",
)  # fmt: skip


class UnitsError(OdradekError):
    """Units that would not work; the text says what to change."""


def install(root: Path, user: str) -> list[Path]:
    """Write units, sysusers.d, tmpfiles.d and, where there are none, our configurations below `root`; returns them."""
    config_file = root / render.CONFIG.relative_to("/")
    written = []
    if not config_file.exists():
        written.append(_write(config_file, render.properties()))
    machine = machine_of(configuration.load(config_file), user)
    archive_file = root / render.ARCHIVE_CONFIG.relative_to("/")
    if not archive_file.exists():
        written.append(_write(archive_file, render.archive(machine)))
    for name, text in render.files(machine).items():
        written.append(_write(root / name, text))
    return written


def machine_of(config: BrokerConfig, user: str) -> Machine:
    """The facts that the units need. Raises UnitsError when systemd cannot listen as `listeners` says."""
    return Machine(
        python=Path(sys.executable),
        programs=tuple(programs()),
        user=user,
        sockets=tuple(listen_stream(endpoint) for endpoint in config.listeners),
        workers=config.workers or os.cpu_count() or 1,
        log_dirs=tuple(Path(folder) for folder in config.log_dirs),
        log_file=Path(config["odradek.log.file"]) if config["odradek.log.file"] else None,
        backlog=sockets.backlog(config),
        ipv6_only=_apart({endpoint.host for endpoint in config.listeners}),
        limits=limits(config),
        cluster=bool(config["zookeeper.connect"]),
        exporter=any(config[setting] for setting in EXPORTED),
    )


def limits(config: BrokerConfig) -> dict[str, int]:
    """TimeoutStopSec= of each unit that a stop may wait for, by its name in the units (supervisor.stop_limits)."""
    named = {"ACCEPTOR": roles.ACCEPTOR, "WORKER": roles.FIRST_WORKER, "COORDINATOR": roles.COORDINATOR}
    named |= {"REPLICATOR": roles.REPLICATOR, "JANITOR": roles.JANITOR, "CONTROLLER": roles.CONTROLLER}
    named["EXPORTER"] = roles.EXPORTER
    found = {f"STOP_{name}": stop_limits.stage_of(role, config).unit_s for name, role in named.items()}
    return {**found, "STOP_CLUSTER": stop_limits.departure_unit_s(config)}


def listen_stream(endpoint: Endpoint) -> str:
    """An endpoint in the form of ListenStream=. Looks names up now: systemd takes addresses only."""
    if endpoint.port == 0:
        raise UnitsError(f"{endpoint}: under systemd a listener needs a port of its own, not 0; change `listeners`")
    if not endpoint.host:
        return str(endpoint.port)
    return f"{bracket(sockets.address_of(endpoint))}:{endpoint.port}"


def _apart(hosts: set[str]) -> bool:
    """Whether `::` means IPv6 alone, as it does where sockets.py opens it; no host at all means both families."""
    return "" not in hosts and bool(hosts & {"::", "0.0.0.0"})


def programs() -> Iterator[Path]:
    """Every directory that this interpreter reads modules from."""
    yield from {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).parent}
    for package in _PACKAGES:
        yield Path(importlib.import_module(f"odradek.{package}").__path__[0])


def warnings(root: Path, user: str) -> list[str]:
    """Warnings of later problems with the installation below `root`."""
    config = configuration.load(root / render.CONFIG.relative_to("/"))
    found = [
        swept("the programs are", programs(), "install them elsewhere (python3 -m venv /opt/odradek), then the units"),
        swept("log.dirs is", map(Path, config.log_dirs), "move it, then install the units again"),
        trap(user) if root == Path("/") else "",
    ]
    return [text for text in found if text]


def swept(what: str, folders: Iterable[Path], remedy: str) -> str:
    """A warning when systemd-tmpfiles would remove files in `folders`, at boot or by age; else empty."""
    found = [path for path in folders if any(path.is_relative_to(private) for private in render.PRIVATE)]
    if not found:
        return ""
    return f"{what} in {min(found)}: systemd empties /tmp at boot and removes old files from /var/tmp; {remedy}"


def trap(user: str) -> str:
    """A warning when logind would unlink the broker's shared memory at a logout of `user`; else empty."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return ""
    if uid == 0 or uid < SYSTEM_UIDS:
        return ""
    return (
        f"{user} is not a system user: when it logs out, logind removes its shared memory, including the broker's; use "
        "a system user, or set RemoveIPC=no in /etc/systemd/logind.conf"
    )


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    except OSError as error:
        raise UnitsError(f"{path}: {error.strerror} (as root, or with --prefix)") from None
    return path
