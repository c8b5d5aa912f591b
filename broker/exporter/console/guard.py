"""Which requests the console answers: GET, of its own page, and without users only at an address of this machine. Pure.

A web site that the user has open elsewhere could send requests to a console on loopback through the browser: by a name
of its own that it lets point to 127.0.0.1 (DNS rebinding), which the Host header gives away; or by the address, which
browsers say in Sec-Fetch-Site. Such a site could read no answer, for there is no CORS, but would make the broker work.

A console that asks for users may have any name: a browser sends a password only to the name for which it was typed, and
only once the certificate has proven that name. It sends it along with requests of other web sites too, so that
Sec-Fetch-Site counts there as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from odradek.broker.exporter.access import sites
from odradek.broker.exporter.access.refused import Refused
from odradek.cluster.configs.admitted import is_loopback

# No script or style but the files of the page, nothing from other hosts, no frame around it.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")


def check(method: str, headers: Mapping[str, str], asks_for_users: bool = False) -> None:
    """Raises Refused."""
    if method != "GET":
        raise Refused(405, f"{method[:20]}: the console only reads: use GET")
    if not asks_for_users and not is_here(headers.get("Host", "")):
        raise Refused(403, "the Host header must be localhost or a loopback address: open http://localhost:PORT/")
    sites.check(headers)


def is_here(host: str) -> bool:
    """Whether a Host header names this machine: any port, for a tunnel may have another."""
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found[1].strip("[]"))
