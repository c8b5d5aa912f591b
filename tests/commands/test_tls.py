"""`odradek tls init` and `odradek tls renew`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.broker.commands.tls import authority, certificates, command
from odradek.broker.errors import OdradekError
from odradek.security.tls import listener
from odradek.security.tls.handshake import rehearse
from odradek.security.tls.settings import listener_settings

WORDS = ["init", "--hostname", "localhost", "--hostname", "::1", "--client", "alice", "--client", "bob"]


def called(*words: str) -> Result:
    done = CliRunner().invoke(command, list(words))
    if isinstance(done.exception, OdradekError):
        raise done.exception
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tls"


def texts(output: str, name: str) -> dict[str, str]:
    """The lines of a properties file in the output of the command."""
    found = re.search(rf"^# .*{name}\n((?:.+\n?)+)", output, re.MULTILINE)
    assert found
    return dict(line.split("=", 1) for line in found[1].splitlines())


def now() -> float:
    import time

    return time.time()


def test_init_prints_working_settings(folder: Path) -> None:
    done = called(*WORDS, "--directory", str(folder))
    assert done.exit_code == 0, done.output
    server = listener.load(listener_settings(texts(done.output, "server.properties")), now(), inter_broker=True)
    settings = texts(done.output, "client.properties") | {"ssl.endpoint.identification.algorithm": ""}
    assert rehearse(listener.load_client(listener_settings(settings), now()), server.server) == ""
    assert server.warnings == ()


def test_only_the_owner_can_read_key_files(folder: Path) -> None:
    called(*WORDS, "--directory", str(folder))
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    keys = dict.fromkeys(("ca.key", "server.pem", "alice.pem", "bob.pem"), 0o600)
    assert modes == keys | {"ca.pem": 0o644} and folder.stat().st_mode & 0o777 == 0o700


def test_renew_keeps_the_names(folder: Path) -> None:
    called(*WORDS, "--directory", str(folder), "--days", "5")
    old = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = called("renew", "--directory", str(folder))
    assert done.exit_code == 0 and "alice.pem" in done.output
    new = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name in old if old[name] == new[name]} == {"ca.key", "ca.pem"} and old.keys() == new.keys()
    before, after = (certificates.load(files["server.pem"]).certificate for files in (old, new))
    assert before.subject == after.subject
    assert certificates.hostnames_of(after) == ["localhost", "::1"]
    assert (after.not_valid_after_utc - before.not_valid_after_utc).days == 360


def test_ca_that_would_expire_first_is_extended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "CA_DAYS", 20)
        called(*WORDS, "--directory", str(folder), "--days", "10")
    before = authority._load_ca(folder)
    called("renew", "--directory", str(folder), "--days", "10")
    assert authority._load_ca(folder).certificate == before.certificate
    called("renew", "--directory", str(folder), "--days", "30")
    after = authority._load_ca(folder)
    assert (after.certificate.not_valid_after_utc - before.certificate.not_valid_after_utc).days == 3630
    assert after.key_pem == before.key_pem
    server = certificates.load((folder / "server.pem").read_bytes()).certificate
    for ca in (before, after):
        server.verify_directly_issued_by(ca.certificate)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["renew"], "has no CA: run `odradek tls init` first"),
        (["init", "--hostname", "a b"], "--hostname: 'a b' is neither a host name nor an address"),
        (["init", "--hostname", "a", "--client", "../x"], "--client: '../x' cannot be the name of a file"),
        (["init", "--hostname", "a", "--client", "server"], "--client: 'server' cannot be the name of a file"),
        (["init", "--hostname", "a" * 65], "is too long for a certificate"),
    ],
)
def test_invalid_option_creates_no_folder(folder: Path, words: list[str], line: str) -> None:
    with pytest.raises(OdradekError, match=re.escape(line)):
        called(*words, "--directory", str(folder))
    assert not folder.exists()


def test_a_second_init_is_refused(folder: Path) -> None:
    called(*WORDS, "--directory", str(folder))
    with pytest.raises(OdradekError, match="has a CA already: run `odradek tls renew`"):
        called(*WORDS, "--directory", str(folder))
