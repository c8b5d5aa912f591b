"""Certificates are replaced while connections are busy, and no connection has an error."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.commands.tls import authority, certificates
from odradek.ipc import rundir
from odradek.workers.authentication import authentication

from ...clients.admin import create_topic
from ...clients.raw.batches import batch
from ...clients.raw.calls import produce
from ...fuzz.test_connections import descriptors
from ...harness.process import wait_until
from ...security.tls.conftest import private
from .secured_broker import SecuredBroker

pytestmark = pytest.mark.live

SECONDS = 60


def test_two_polls_are_within_two_seconds() -> None:
    """A worker ticks at least every half second."""
    assert 2 * (authentication.POLL_S + 0.5) <= 2


class BusyConnections:
    """Many connections, which produce one after the other."""

    def __init__(self, broker: SecuredBroker, number: int) -> None:
        self.topic = create_topic(broker, "busy")
        protocols = ("SSL", "SASL_SSL")
        self._wires = [broker.authenticated(protocols[at % 2]) for at in range(number)]
        self.rounds = 0
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for wire in self._wires:
                    assert produce(wire, self.topic, batch([b"x"])).error_code == 0
                self.rounds += 1
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        """Check that all connections produce: wait for a whole round from now."""
        now = self.rounds
        wait_until(lambda: self._error or self.rounds > now + 1, SECONDS * 2, "another round of all connections")
        if self._error:
            raise AssertionError("a busy connection had an error") from self._error

    def close(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        for wire in self._wires:
            wire.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    made = SecuredBroker(tmp_path)
    try:
        yield made.start()  # type: ignore[misc]
    finally:
        made.close()


def serial(broker: SecuredBroker, protocol: str = "SSL") -> int:
    """The serial number of the certificate that a new connection gets."""
    wire = broker.connect(protocol)
    try:
        found = wire.socket.getpeercert()  # type: ignore[attr-defined]
        return int(found["serialNumber"], 16)
    finally:
        wire.close()


def serial_in(path: Path) -> int:
    return certificates.load(path.read_bytes()).certificate.serial_number


def await_serial(broker: SecuredBroker, path: Path) -> None:
    """Wait until all workers serve the certificate on both listeners: several connections in a row get it."""
    wanted = serial_in(path)

    def served() -> bool:
        return all(serial(broker, protocol) == wanted for protocol in ("SSL", "SASL_SSL") for _ in range(4))

    wait_until(served, SECONDS, "the new certificate")


def alter(broker: SecuredBroker, config: str) -> None:
    words = ["--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-name", "0", "--alter"]
    done = broker.command("configs", *words, "--add-config", config)
    assert done.returncode == 0, done.stdout + done.stderr


def _replace_certificates_under_load(broker: SecuredBroker, number: int) -> None:
    busy = BusyConnections(broker, number)
    try:
        for change in (_rename, _symlink_swap, _alter_configs, _another_ca):
            change(broker)
            busy.check()
        _broken_file(broker)
        busy.check()
    finally:
        busy.close()
    run_dir = rundir.run_dir(broker.data_dir)
    assert (run_dir / "notices.json").exists()
    broker.stop()
    assert not run_dir.exists()


def _rename(broker: SecuredBroker) -> None:
    authority.renew(broker.tls, 90)
    await_serial(broker, broker.tls / "server.pem")


def _symlink_swap(broker: SecuredBroker) -> None:
    """Swap links as Kubernetes and certbot do: first the name becomes a link, then the link is replaced."""
    name = broker.tls / "server.pem"
    for version in ("one", "two"):
        folder = broker.folder / version
        shutil.copytree(broker.tls, folder, symlinks=True)
        (folder / "server.pem").unlink()
        shutil.copy(name, folder / "server.pem")
        authority.renew(folder, 80)
        link = broker.tls / ".link"
        link.symlink_to(folder / "server.pem")
        os.replace(link, name)
        await_serial(broker, folder / "server.pem")


def _alter_configs(broker: SecuredBroker) -> None:
    folder = broker.folder / "three"
    shutil.copytree(broker.tls, folder, symlinks=True)
    (folder / "server.pem").unlink()
    shutil.copy(broker.tls / "server.pem", folder / "server.pem")
    authority.renew(folder, 70)
    alter(broker, f"ssl.keystore.location={folder / 'server.pem'}")
    await_serial(broker, folder / "server.pem")


def _another_ca(broker: SecuredBroker) -> None:
    """Both CAs are trusted for a while; then the server and its clients have certificates of the new one."""
    now = datetime.datetime.now(datetime.UTC)
    new = certificates.new_ca(now, "Another CA")
    trust = broker.tls / "ca.pem"
    private(trust, trust.read_bytes() + new.certificate_pem)
    pair = certificates.issue(new, "localhost", ["localhost", "127.0.0.1"], now, 60)
    private(broker.folder / "three" / "server.pem", pair.key_pem + pair.certificate_pem)
    await_serial(broker, broker.folder / "three" / "server.pem")
    alice = certificates.issue(new, "alice", [], now, 60)
    for pem in (alice.key_pem + alice.certificate_pem, Path(broker.client_pem).read_bytes()):
        private(Path(broker.client_pem), pem)
        broker.connect("SSL", certificate=True).close()


def _broken_file(broker: SecuredBroker) -> None:
    path = broker.folder / "three" / "server.pem"
    good, since = serial_in(path), len(broker.log)
    private(path, b"-----BEGIN nothing")
    broken = "the old certificate stays in force"
    assert len(broker.pids("worker")) > 1
    wait_until(lambda: broker.log[since:].count(broken) >= 2, SECONDS, "a line for each listener")
    assert serial(broker) == good
    time.sleep(2)  # the other workers have polled, too
    assert broker.log[since:].count(broken) == 2, "one line for each listener, not for each worker"
    since = len(broker.log)
    now = datetime.datetime.now(datetime.UTC)
    pair = certificates.issue(certificates.new_ca(now), "localhost", ["localhost", "127.0.0.1"], now, 10)
    private(path, pair.key_pem + pair.certificate_pem)
    wait_until(lambda: broker.log[since:].count("get the new certificate") >= 2, SECONDS, "the repaired certificate")
    time.sleep(2)
    assert broker.log[since:].count("get the new certificate") == 2
    assert broker.log[since:].count("expires in 10 days: renew it") == 2
    status = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
    assert 9 < status["certificate_days"] <= 10


def test_certificates_are_replaced_under_a_hundred_busy_connections(broker: SecuredBroker) -> None:
    _replace_certificates_under_load(broker, 100)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_certificates_are_replaced_under_five_hundred_busy_connections(broker: SecuredBroker) -> None:
    with descriptors(4000):
        _replace_certificates_under_load(broker, 500)


def test_worker_without_certificate_refuses_connections_until_it_is_back(tmp_path: Path) -> None:
    """The refusals are logged in one line; other listeners serve."""
    broker = SecuredBroker(tmp_path, odradek_workers=1)
    try:
        broker.start()
        path = broker.tls / "server.pem"
        away = path.with_name("away")
        path.rename(away)
        since = len(broker.log)
        broker.await_respawn("worker", broker.kill_role("worker"))
        wait_until(lambda: "SASL_SSL refuses all connections" in broker.log[since:], SECONDS)
        for _ in range(20):
            with pytest.raises((OSError, EOFError)):
                broker.connect("SSL")
        lines = [line for line in broker.log[since:].splitlines() if "listener SSL" in line or "cannot serve" in line]
        assert len(lines) == 1, lines
        assert "ssl.keystore.location" in lines[0]
        broker.authenticated("SASL_PLAINTEXT").close()
        with broker.wire() as wire:
            assert wire.api_versions()
        away.rename(path)
        wait_until(lambda: takes(broker), SECONDS, "the listener takes connections again")
        assert "listener SSL takes connections again" in broker.log
    finally:
        broker.close()


def takes(broker: SecuredBroker) -> bool:
    try:
        broker.authenticated("SSL").close()
    except (OSError, EOFError):
        return False
    return True


def test_restarted_worker_uses_the_dynamic_settings(broker: SecuredBroker) -> None:
    folder = broker.folder / "dynamic"
    shutil.copytree(broker.tls, folder)
    authority.renew(folder, 70)
    alter(broker, f"listener.name.ssl.ssl.keystore.location={folder / 'server.pem'}")
    wanted = serial_in(folder / "server.pem")
    wait_until(lambda: all(serial(broker) == wanted for _ in range(4)), SECONDS)
    for which in (0, 1):
        broker.await_respawn("worker", broker.kill_role("worker", which))
        wait_until(lambda: len(broker.pids("worker")) == 2, SECONDS, "both workers")
    assert all(serial(broker) == wanted for _ in range(4))


def test_broker_starts_with_dynamic_settings_without_the_former_file(broker: SecuredBroker) -> None:
    """The start fails if the file of the dynamic settings is missing."""
    folder = broker.folder / "dynamic"
    shutil.copytree(broker.tls, folder)
    alter(broker, f"ssl.keystore.location={folder / 'server.pem'}")
    (broker.tls / "server.pem").unlink()
    broker.restart()
    assert serial(broker) == serial_in(folder / "server.pem")
    broker.stop()
    (folder / "server.pem").unlink()
    with pytest.raises(AssertionError, match=r"ssl\.keystore\.location"):
        broker.start()
