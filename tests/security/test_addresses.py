"""One notation for each IP address."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from odradek.security.addresses import canonical


@given(st.ip_addresses())
def test_each_notation_of_an_address_has_the_same_text(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    texts = {canonical(text) for text in (str(address), address.exploded, address.exploded.upper())}
    assert texts == {str(mapped or address)}


@given(st.ip_addresses(v=4))
def test_ipv4_address_within_ipv6_is_the_ipv4_address(address: ipaddress.IPv4Address) -> None:
    assert canonical(f"::ffff:{address}") == canonical(f"0:0:0:0:0:FFFF:{address}") == str(address)


def test_zone_is_left_out_and_other_texts_stay() -> None:
    assert canonical("fe80::1%eth0") == "fe80::1"
    assert [canonical(text) for text in ("", "host", "10.0.0", "*")] == ["", "host", "10.0.0", "*"]
