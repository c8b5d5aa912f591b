"""The security of the exporter's listeners as it is now: certificate, mechanisms, users and ACLs.

Owner: the exporter process, one thread at a time (`readers`). `follow` adopts what has changed: files of certificates
by the second look that sees them, dynamic configs, and the security metadata in shared memory. What cannot be used
leaves the former in force, and is logged once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping

from odradek.broker.config import BrokerConfig
from odradek.broker.exporter.access import listener_names
from odradek.broker.exporter.access.passwords import Passwords
from odradek.cluster import user_store
from odradek.cluster.configs import dynamic_passwords
from odradek.cluster.metadata.security_metadata import NO_SECURITY_METADATA, SecurityMetadata
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc.metadata import MetadataRegion
from odradek.security import core_dumps
from odradek.security.sasl import plain
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.sasl_settings import Credentials
from odradek.security.tls.listener import TlsListener
from odradek.workers.authentication.listener_security import ListenerSecurity
from odradek.workers.dispatch.authorization import Authorization, Rights
from odradek.workers.dispatch.credentials import LiveCredentials

log = logging.getLogger(__name__)


class LiveSecurity:
    """What is in force. `security` is the metadata that credentials and rights come from."""

    def __init__(self, config: BrokerConfig, region: MetadataRegion) -> None:
        core_dumps.disable()
        self._config, self._region = config, region
        self._name: str = config.get(listener_names.NAME, "EXPORTER")
        self._encoder = dynamic_passwords.encoder_of(config)
        self._settings: Mapping[str, str] = {}
        self._snapshot = 0  # the version of the last one whose dynamic configs were taken
        self.security = NO_SECURITY_METADATA
        self.generation = 0
        """Changes with users, ACLs and settings: what was decided before must be decided again."""
        self._credentials = LiveCredentials(self, user_store.token_settings(config)).credentials
        self._authorization = Authorization(config)
        self._listener = ListenerSecurity(self._name, listener_names.SECURED)
        self._fault = ""
        self._take(config.originals)

    @property
    def stale(self) -> bool:
        """Whether users or ACLs have changed; cheap."""
        return self._region.version != self.security.version

    @property
    def is_known(self) -> bool:
        """Whether there is metadata, with users, ACLs and dynamic configs. Before, the settings alone would decide."""
        return self.security.version > 0 and self._snapshot > 0

    @property
    def tls(self) -> TlsListener | None:
        """The TLS of new connections; None while there is no certificate that can be used."""
        return None if self._listener.fault else self._listener.tls

    def follow(self, snapshot: Snapshot, now: float) -> None:
        """Adopt what has changed; `now`: of the wall clock."""
        if self.stale:
            self.security = SecurityMetadata.parse(*self._region.read())
            self._authorization.adopt(self.security)
            self.generation += 1
        if snapshot.version != self._snapshot:
            self._snapshot = snapshot.version
            own, default = snapshot.dynamic_layers(self._config["broker.id"])
            self._take(dynamic_passwords.settings(self._config.originals, own, default, self._encoder))
        self._look(now)

    def _look(self, now: float) -> None:
        """At the files."""
        if self._listener.fault:
            self._load(now)
        else:
            self._listener.poll(now)

    def _take(self, settings: Mapping[str, str]) -> None:
        if settings == self._settings:
            return
        self._settings = settings
        self.generation += 1
        self._load(time.time()) if self._listener.fault else self._change(time.time())

    def _load(self, now: float) -> None:
        """Log a failure once; until a later try has none there are no connections."""
        try:
            self._listener.load(self._usable(), now, self._credentials, _no_versions)
        except ValueError as error:
            if str(error) != self._fault:
                log.error("listener %s refuses all connections: %s", self._name, error)
            self._fault = str(error)
            return
        if self._fault:
            log.info("listener %s takes connections again", self._name)
        self._fault = ""

    def _change(self, now: float) -> None:
        try:
            self._listener.follow(self._usable(), now, self._credentials, _no_versions)
        except ValueError as error:
            log.error("listener %s: %s; the former settings stay in force", self._name, error)

    def _usable(self) -> dict[str, str]:
        return listener_names.settings_of(self._settings, self._name)

    def passwords(self) -> Passwords:
        """The users that there are now."""
        mechanisms = self._listener.sasl.mechanisms if self._listener.sasl is not None else {}
        made = mechanisms[plain.NAME]() if plain.NAME in mechanisms else None
        return Passwords(mechanisms, made if isinstance(made, PlainServer) else None, self._credentials)

    def rights(self, principal: str, host: str) -> Rights:
        """What a user may see."""
        return self._authorization.of(principal, host)


def _no_versions(_version: int, _error: int) -> bytes:
    """No client of these listeners speaks Kafka's protocol."""
    return b""


def faults(config: BrokerConfig, settings: Mapping[str, str], now: float) -> Iterator[str]:
    """A line where listeners of the exporter ask for users and these settings cannot secure them. Logs warnings.

    Reads the private key: from then on this process writes no core dump.
    """
    wanted = listener_names.secured(config)
    if not wanted:
        return
    core_dumps.disable()
    name, asking = config[listener_names.NAME], " and ".join(f"{one}={config[one]}" for one in wanted)
    security = ListenerSecurity(name, listener_names.SECURED)
    try:
        usable = listener_names.settings_of(settings, name)
        security.load(usable, now, Credentials(lambda mechanism, user: None), _no_versions)
    except ValueError as error:
        yield f"{asking} has https and asks for users: {error}"
    for line in security.tls.warnings if security.tls is not None else ():
        log.warning("%s: %s", asking, line)
