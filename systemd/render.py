"""Render the units for one machine: interpreter, user, directories, sockets and workers.

Every unit is complete, with the hardening in it, so that `systemctl cat` shows what applies. An administrator's changes
go into drop-ins; a new installation replaces the units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

CONFIG = Path("/etc/odradek/server.properties")
ARCHIVE_CONFIG = Path("/etc/odradek/archive.conf")
STATE_DIR = Path("/var/lib/odradek")
RUN_DIR = Path("/run/odradek/broker")  # below RuntimeDirectory=, so that the broker may remove and create it itself

# The target folder of each file in `units/`; the other files there are parts of these.
PLACES = {
    "odradek.target": "etc/systemd/system",
    "odradek.socket": "etc/systemd/system",
    "odradek-memory.service": "etc/systemd/system",
    "odradek-supervisor.service": "etc/systemd/system",
    "odradek-controller.service": "etc/systemd/system",
    "odradek-coordinator.service": "etc/systemd/system",
    "odradek-janitor.service": "etc/systemd/system",
    "odradek-replicator.service": "etc/systemd/system",
    "odradek-exporter.service": "etc/systemd/system",
    "odradek-acceptor.service": "etc/systemd/system",
    "odradek-cluster.service": "etc/systemd/system",
    "odradek-worker@.service": "etc/systemd/system",
    "odradek-offline.path": "etc/systemd/system",
    "odradek-offline.target": "etc/systemd/system",
    "odradek-archive.service": "etc/systemd/system",
    "odradek-archive.timer": "etc/systemd/system",
    "sysusers.conf": "etc/sysusers.d",
    "tmpfiles.conf": "etc/tmpfiles.d",
}
_NAMES = {"sysusers.conf": "odradek.conf", "tmpfiles.conf": "odradek.conf"}
_ARCHIVE = "odradek-archive.service"
_EXPORTER = "odradek-exporter.service"
_CONNECTING = tuple(f"odradek-{name}.service" for name in ("memory", "controller", "coordinator", "replicator"))
_ALONE = """
# No process opens an Internet socket: systemd listens (odradek.socket), the acceptor passes connections on.
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
IPAddressDeny=any
"""
_CONNECTED = """
# Costs points: it speaks to ZooKeeper, to brokers, or to those who read metrics.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
"""
_JAVA = """
# Costs points: Java compiles what it runs.
MemoryDenyWriteExecute=no
"""
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))  # what ProtectHome= hides
PRIVATE = (Path("/tmp"), Path("/var/tmp"))  # what PrivateTmp= hides
_HIDDEN = _HOMES + PRIVATE
_MARK = re.compile(r"@([A-Z0-9]+(?:_[A-Z]+)?)@")


@dataclass(frozen=True)
class Machine:
    """The values of the units that differ between machines.

    `programs` are directories that the interpreter reads (its environment, our packages); `sockets` are values of
    ListenStream=; `limits` are the values of TimeoutStopSec=, by mark; `cluster`: there are other brokers to replicate
    from; `exporter`: metrics are served.
    """

    python: Path
    programs: tuple[Path, ...]
    user: str
    sockets: tuple[str, ...]
    workers: int
    limits: Mapping[str, int]
    log_dirs: tuple[Path, ...] = (STATE_DIR,)
    log_file: Path | None = None
    backlog: int = 50
    ipv6_only: bool = False
    cluster: bool = False
    exporter: bool = False


def files(machine: Machine) -> dict[str, str]:
    """Every file to install, by its path below the root."""
    values = _values(machine)
    return {
        f"{place}/{_NAMES.get(name, name)}": fill(_text(name), values | _of(machine, name))
        for name, place in PLACES.items()
    }


def properties() -> str:
    """A first server.properties."""
    return fill(_text("server.properties"), {"RUN_DIR": str(RUN_DIR)})


def archive(machine: Machine) -> str:
    """A first archive.conf: all topics of this broker, except those that other programs use internally (`_schemas`)."""
    host, _, port = machine.sockets[0].rpartition(":")
    server = machine.sockets[0] if host not in ("", "0.0.0.0", "[::]") else f"localhost:{port}"
    return fill(_text("archive.conf"), {"SERVER": server})


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with every `@NAME@` replaced, also within replacements; KeyError for an unknown one."""
    while _MARK.search(text):
        text = _MARK.sub(lambda found: values[found[1]], text)
    return text


def _text(name: str) -> str:
    return (resources.files(__package__) / "units" / name).read_text().rstrip("\n") + "\n"


def _values(machine: Machine) -> dict[str, str]:
    return {
        "PYTHON": escaped(machine.python).replace("$", "$$"),
        "USER": machine.user,
        "CONFIG": str(CONFIG),
        "ARCHIVE_CONFIG": str(ARCHIVE_CONFIG),
        "RUN_DIR": str(RUN_DIR),
        "HARDENING": _text("hardening.conf").rstrip("\n"),
        "DAEMON": _text("daemon.conf").rstrip("\n"),
        "HOME": "\n".join(_home(machine)),
        "READABLE": "".join(f"{line}\n" for line in _readable(machine)),
        "WRITABLE": "".join(f"{line}\n" for line in _writable(machine)),
        "DIRECTORIES": "".join(f"{line}\n" for line in _directories(machine)),
        "LISTEN": "\n".join(f"ListenStream={address}" for address in machine.sockets),
        "IPV6ONLY": "ipv6-only" if machine.ipv6_only else "both",
        "BACKLOG": str(machine.backlog),
        "WORKERS": " ".join(f"odradek-worker@{number}.service" for number in range(machine.workers)),
        **{mark: str(seconds) for mark, seconds in machine.limits.items()},
        "EXPORTER": f" {_EXPORTER}" if machine.exporter else "",
        "CLUSTER": " odradek-replicator.service odradek-cluster.service" if machine.cluster else "",
    }


def _of(machine: Machine, unit: str) -> dict[str, str]:
    """The values that differ between the units."""
    connected = unit in (_ARCHIVE, _EXPORTER) or (machine.cluster and unit in _CONNECTING)
    return {
        "NETWORK": (_CONNECTED if connected else _ALONE).strip(),
        "COMPILING": _JAVA.strip() if unit == _ARCHIVE else "MemoryDenyWriteExecute=yes",
        "STATE": _text("archive-state.conf" if unit == _ARCHIVE else "state.conf").rstrip("\n"),
    }


def escaped(path: Path) -> str:
    """A path for a list of paths: `%` begins a specifier, a blank ends a word."""
    text = str(path).replace("\\", "\\\\").replace("%", "%%")
    return f'"{text}"' if re.search(r"[\s'\";]", text) else text


def _home(machine: Machine) -> list[str]:
    """Homes are hidden; programs in one are made visible, read-only."""
    shown = sorted({path for path in machine.programs if _below(path, _HIDDEN)})
    outermost = [path for path in shown if not any(path != other and path.is_relative_to(other) for other in shown)]
    at_home = any(_below(path, _HOMES) for path in (*outermost, *_written(machine)))
    lines = ["ProtectHome=tmpfs" if at_home else "ProtectHome=yes"]
    if outermost:
        lines.insert(0, "# The programs live where services cannot look; /opt would be a better place for them.")
        lines += [f"BindReadOnlyPaths={escaped(path)}" for path in outermost]
    return lines


def _below(path: Path, folders: Iterable[Path]) -> bool:
    return any(folder in path.parents for folder in folders)


def _outside(machine: Machine) -> list[Path]:
    return [path for path in machine.log_dirs if not path.is_relative_to(STATE_DIR)]


def _written(machine: Machine) -> list[Path]:
    return [*_outside(machine), *([machine.log_file.parent] if machine.log_file else [])]


def _writable(machine: Machine) -> list[str]:
    """ProtectSystem=strict makes all but the state directory read-only; hidden folders must be made visible first."""
    lines = [f"{_opening(path)}={escaped(path)}" for path in _outside(machine)]
    if machine.log_file is not None:  # the administrator creates its folder and sets its owner and mode
        lines.append(f"{_opening(machine.log_file.parent)}=-{escaped(machine.log_file.parent)}")
    return lines


def _readable(machine: Machine) -> list[str]:
    """The broker's data in folders that are hidden from a process."""
    return [f"BindReadOnlyPaths=-{escaped(path)}" for path in _outside(machine) if _below(path, _HIDDEN)]


def _opening(path: Path) -> str:
    return "BindPaths" if _below(path, _HIDDEN) else "ReadWritePaths"


def _directories(machine: Machine) -> list[str]:
    """A unit cannot start if a directory in its writable paths is missing."""
    return [f"d {escaped(path)} 0750 @USER@ @USER@ -" for path in _outside(machine)]
