"""The directory of `odradek tls`: `ca.key`, `ca.pem`, `server.pem`, and a `NAME.pem` for each client.

Owner: the user who runs the commands; only that user can enter the directory (0700, unless it was there before) and
read the keys (0600). A file is replaced as a whole, so that a broker never reads half of one, and a crash leaves the
old one or the new one.
"""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair
from odradek.broker.errors import OdradekError

CA_KEY, CA, SERVER = "ca.key", "ca.pem", "server.pem"
_CLIENT = re.compile(r"[\w][\w.@-]*")
_HOSTNAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|[0-9A-Fa-f:.]+")
_LONGEST_NAME = 64  # what a common name may have


def init(directory: Path, hostnames: list[str], clients: list[str], days: int) -> list[Path]:
    """Make the directory and all in it; returns the files."""
    _check_names(hostnames, clients)
    if (directory / CA_KEY).exists():
        raise OdradekError(f"{directory} has a CA already: run `odradek tls renew`, or choose another --directory")
    _make_private(directory)
    now = datetime.datetime.now(datetime.UTC)
    ca = certificates.new_ca(now)
    written = [_write(directory / CA_KEY, ca.key_pem), _write(directory / CA, ca.certificate_pem, 0o644)]
    written.append(_issue(directory / SERVER, ca, hostnames[0], hostnames, now, days))
    return written + [_issue(directory / f"{name}.pem", ca, name, [], now, days) for name in clients]


def renew(directory: Path, days: int) -> list[Path]:
    """Replace every certificate, and the CA's when it would expire before them; returns the files that changed."""
    now = datetime.datetime.now(datetime.UTC)
    ca = _load_ca(directory)
    written = []
    if ca.certificate.not_valid_after_utc < now + datetime.timedelta(days=days):
        ca = certificates.extend_ca(ca, now)
        written.append(_write(directory / CA, ca.certificate_pem, 0o644))
    for path in _issued(directory):
        old = _load(path)
        hostnames = certificates.hostnames_of(old.certificate)
        written.append(_issue(path, ca, old.common_name, hostnames, now, days))
    return written


def names(directory: Path) -> tuple[str, str]:
    """The broker's first name, and a client's."""
    server = _load(directory / SERVER)
    clients = [path.stem for path in _issued(directory) if path.name != SERVER]
    return certificates.hostnames_of(server.certificate)[0], next(iter(clients), "client")


def _check_names(hostnames: list[str], clients: list[str]) -> None:
    for name in hostnames:
        if not _HOSTNAME.fullmatch(name):
            raise OdradekError(f"--hostname: {name!r} is neither a host name nor an address")
    for name in clients:
        if not _CLIENT.fullmatch(name) or f"{name}.pem" in (CA, SERVER):
            raise OdradekError(f"--client: {name!r} cannot be the name of a file; use letters, digits, '.', '-', '_'")
    for name in (hostnames[0], *clients):
        if len(name) > _LONGEST_NAME:
            raise OdradekError(f"{name!r} is too long for a certificate: use at most {_LONGEST_NAME} characters")


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OdradekError(f"--directory: cannot make {directory}: {error.strerror}") from None


def _issue(path: Path, ca: Pair, name: str, hostnames: list[str], now: datetime.datetime, days: int) -> Path:
    pair = certificates.issue(ca, name, hostnames, now, days)
    return _write(path, pair.key_pem + pair.certificate_pem)


def _issued(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.pem") if path.name != CA)


def _load_ca(directory: Path) -> Pair:
    try:
        return certificates.load((directory / CA_KEY).read_bytes() + (directory / CA).read_bytes())
    except FileNotFoundError:
        raise OdradekError(f"{directory} has no CA: run `odradek tls init` first, or choose its --directory") from None
    except (OSError, ValueError) as error:
        raise OdradekError(f"cannot read the CA in {directory}: {error}") from None


def _load(path: Path) -> Pair:
    try:
        return certificates.load(path.read_bytes())
    except (OSError, ValueError) as error:
        raise OdradekError(f"cannot read {path}: {error}; move it away if it is not from `odradek tls`") from None


def _write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    """Replace the file as a whole; no other user can read it at any moment."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    new.rename(path)
    return path
