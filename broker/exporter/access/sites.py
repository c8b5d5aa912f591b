"""Which web site a browser sends a request for, by Sec-Fetch-Site. Pure.

A browser sends a password along with requests of other web sites too. Those could read no answer, for there is no CORS,
but would make the broker work.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.exporter.access.refused import Refused

_OWN = ("", "same-origin", "none")  # an old browser or another program; the page; the address bar


def check(headers: Mapping[str, str]) -> None:
    """Raises Refused for a request of another site."""
    if headers.get("Sec-Fetch-Site", "") not in _OWN:
        raise Refused(403, "another web site sent this request: open the address yourself")
