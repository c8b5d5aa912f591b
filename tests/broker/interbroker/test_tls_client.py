"""The TLS context for ZooKeeper: changed files are loaded, errors in them are one line for the whole broker."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.interbroker import tls_client
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.broker.interbroker.tls_client import TlsClient
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.ipc.notices import Notices
from odradek.security.tls.settings import TlsError, listener_settings

from ...security.tls.conftest import private

NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture
def trust(tmp_path: Path) -> Path:
    return Path(private(tmp_path / "ca.pem", certificates.new_ca(NOW).certificate_pem))


def clients(trust: Path, run_dir: Path) -> list[TlsClient]:
    """Clients of three processes of a broker."""
    settings = listener_settings({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)})
    return [TlsClient(settings, Notices(run_dir).is_first) for _ in range(3)]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.INFO]


def test_one_line_for_all_processes(
    trust: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tls_client, "SETTLED_S", 0.0)
    made = clients(trust, tmp_path)
    former = [one.context() for one in made]
    private(trust, b"x")
    assert [one.context() for one in made] == former
    (line,) = lines(caplog)
    assert "ssl.truststore.location" in line and line.endswith("; the former content stays in force")
    caplog.clear()
    private(trust, certificates.new_ca(NOW).certificate_pem)
    assert not set(former) & {one.context() for one in made}
    assert lines(caplog) == [f"loaded {trust}"]
    private(trust, b"x")
    made[0].context()
    assert len(lines(caplog)) == 2, "a second error is logged once as well"


def test_without_a_first_content_there_is_no_context(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"ssl\.truststore\.location: .*none\.pem does not exist"):
        clients(tmp_path / "none.pem", tmp_path)[0].context()


def test_connections_to_brokers_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each process with such connections refuses an unusable dynamic config."""
    dynamic = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/not/there"}
    for _ in range(3):
        security = LinkSecurity("INTERNAL", "SSL", {}, "broker-1", 1, is_first=Notices(tmp_path).is_first)
        security.follow(Snapshot(raw_snapshot(1, "c", 1, [], {}, {"1": dynamic})))
    (line,) = lines(caplog)
    assert line.startswith("connections to other brokers: ssl.keystore.location: ")
