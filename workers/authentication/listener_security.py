"""The security of the listeners as one process has it: their protocols, certificates and mechanisms, as they are now.

State: for each listener with TLS a `Reloader`, for each with SASL the mechanisms. Owner: the process. A change of the
files is noticed by `poll`, one of dynamic configs by `follow`; what cannot be used leaves the former in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from odradek.ipc.notices import IsFirst
from odradek.security.sasl import sasl_settings
from odradek.security.sasl.exchange import SaslListener
from odradek.security.sasl.sasl_settings import Configured, Credentials
from odradek.security.tls import listener as tls_listener
from odradek.security.tls import reload
from odradek.security.tls.listener import TlsListener
from odradek.security.tls.reload import Rejected, Reloader
from odradek.security.tls.settings import TlsSettings, listener_settings
from odradek.workers.authentication.key_fetcher import KeyFetcher

log = logging.getLogger(__name__)

TLS = ("SSL", "SASL_SSL")
SASL = ("SASL_PLAINTEXT", "SASL_SSL")

ApiVersions = Callable[[int, int], bytes]
"""The body of ApiVersions' response for (version, error)."""
SAME_S = 10  # what processes notice within this time of each other is the same
_DAY_S = 86_400


class ListenerSecurity:
    """The security of one listener."""

    def __init__(
        self, name: str, protocol: str, between_brokers: bool = False, is_first: IsFirst = lambda *_: True
    ) -> None:
        """`is_first`: the lines about changes that all processes notice are logged by the first of them."""
        self.name = name
        self._is_first = is_first
        self._day = 0  # of the last look at the dates
        self.protocol = protocol
        self.sasl: SaslListener | None = None
        self.fault = "it is not loaded yet"
        """Why no connection can be taken; empty: they can."""
        self.in_use = False
        """Whether a connection was taken: until then new settings need not get along with those in force."""
        self._between_brokers = between_brokers
        self._ktls = False
        self._reloader: Reloader | None = None
        self._keys: KeyFetcher | None = None  # that sign bearer tokens
        self._settings: Mapping[str, str] = {}

    @property
    def tls(self) -> TlsListener | None:
        """The TLS in force."""
        return self._reloader.listener if self._reloader is not None else None

    def load(
        self, settings: Mapping[str, str], now: float, credentials: Credentials, api_versions: ApiVersions,
        ktls: bool = False,
    ) -> None:  # fmt: skip
        """Take the broker's settings as text. Raises TlsError and SaslSettingError, one line each."""
        self._ktls = ktls
        if self.protocol in TLS:
            self._reloader = self._loaded(listener_settings(settings, self.name), now)
        if self.protocol in SASL:
            self._set_sasl(sasl_settings.configure(settings, self.name, credentials, api_versions))
        self.fault, self._settings, self._day = "", settings, int(now) // _DAY_S

    def _loaded(self, tls: TlsSettings, now: float) -> Reloader:
        load = partial(_load, between_brokers=self._between_brokers, ktls=self._ktls)
        stats = reload.stats_of(tls)
        return Reloader(load(tls, now), stats, load, inter_broker=self._between_brokers)

    def _set_sasl(self, configured: Configured) -> None:
        """Put mechanisms into force, once the keys of bearer tokens are read where they are a file."""
        keys = KeyFetcher(configured.jwks, configured.jwks_url) if configured.jwks is not None else None
        if keys is not None:
            keys.read_file()
        self.sasl, self._keys = configured.listener, keys

    def try_to_load(
        self, settings: Mapping[str, str], now: float, credentials: Credentials, api_versions: ApiVersions,
        ktls: bool = False,
    ) -> None:  # fmt: skip
        """`load`; a failure is logged once, and all connections are refused until a later try has no failure."""
        try:
            self.load(settings, now, credentials, api_versions, ktls)
        except ValueError as error:  # TlsError, SaslSettingError, or a text that no library takes, such as a NUL
            if str(error) != self.fault:
                log.error("listener %s refuses all connections: %s", self.name, error)
            self.fault = str(error)

    def try_again(
        self, settings: Mapping[str, str], now: float, credentials: Credentials, api_versions: ApiVersions,
        ktls: bool = False,
    ) -> None:  # fmt: skip
        """`try_to_load` where that failed before."""
        self.try_to_load(settings, now, credentials, api_versions, ktls)
        if not self.fault:
            log.info("listener %s takes connections again", self.name)

    def follow(
        self, settings: Mapping[str, str], now: float, credentials: Credentials, api_versions: ApiVersions
    ) -> None:
        """Take changed settings; log what cannot be used. TLS that cannot be used keeps no user that is removed."""
        if settings == self._settings or self.fault:
            return
        self._settings = settings
        self._try("TLS", partial(self._change_tls, settings, now), now)
        if self.protocol in SASL:
            configure = partial(sasl_settings.configure, settings, self.name, credentials, api_versions)
            self._try("SASL", lambda: self._set_sasl(configure()), now)

    def _try(self, what: str, change: Callable[[], None], now: float) -> None:
        try:
            change()
        except ValueError as error:
            line = f"listener {self.name}: {error}; the former settings of {what} stay in force"
            if self._is_first(line, now, SAME_S):
                log.error(line)

    def _change_tls(self, settings: Mapping[str, str], now: float) -> None:
        if self._reloader is None:
            return
        tls = listener_settings(settings, self.name)
        if tls == self._reloader.listener.settings:
            return
        if not self.in_use:
            self._reloader = self._loaded(tls, now)
        else:
            stats = reload.stats_of(tls)
            self._tell(self._reloader.change(tls, now, stats), now, stats)

    def poll(self, now: float) -> None:
        """Look whether the files of the certificates, and the keys of bearer tokens, have changed."""
        if self._reloader is not None:
            stats = reload.stats_of(self._reloader.listener.settings)
            self._tell(self._reloader.poll(now, stats), now, stats)
            self._check_dates(self._reloader.listener, now)
        if self._keys is not None:
            self._keys.poll(int(now * 1000))

    def _tell(self, outcome: reload.Reloaded | Rejected | None, now: float, stats: reload.Stats) -> None:
        if outcome is None:
            return
        line = outcome.line if isinstance(outcome, Rejected) else "new connections get the new certificate"
        if not self._is_first(f"listener {self.name}: {line} {stats}", now, SAME_S):
            return
        log.log(logging.ERROR if isinstance(outcome, Rejected) else logging.INFO, "listener %s: %s", self.name, line)
        for warning in outcome.listener.warnings if isinstance(outcome, reload.Reloaded) else ():
            log.warning("listener %s: %s", self.name, warning)

    def _check_dates(self, tls: TlsListener, now: float) -> None:
        """Once a day, a line about a certificate that expires soon."""
        day = int(now) // _DAY_S
        if day == self._day:
            return
        self._day = day
        warning = tls.expiry_warning(now)
        if warning and self._is_first(f"listener {self.name} on day {day}", now, _DAY_S):
            log.warning("listener %s: %s", self.name, warning)


def _load(settings: TlsSettings, now: float, *, between_brokers: bool, ktls: bool) -> TlsListener:
    return tls_listener.load(settings, now, inter_broker=between_brokers, ktls=ktls)


def faults(
    protocols: Mapping[str, str], between_brokers: str, settings: Mapping[str, str], now: float
) -> Iterable[str]:
    """A line for each listener that cannot be secured with these settings; `protocols`: by listener. Logs warnings."""
    for name, protocol in protocols.items():
        if protocol == "PLAINTEXT":
            continue
        security = ListenerSecurity(name, protocol, name == between_brokers)
        try:
            security.load(settings, now, Credentials(lambda mechanism, user: None), lambda version, error: b"")
        except ValueError as error:
            yield f"listener {name}: {error}"
        for line in security.tls.warnings if security.tls is not None else ():
            log.warning("listener %s: %s", name, line)
