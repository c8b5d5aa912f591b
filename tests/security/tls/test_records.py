"""Reads of TLS records: bytes, no room, a record that is not whole, and the end, with and without the inner object."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import cast

import pytest

from odradek.broker.commands.tls.certificates import Pair
from odradek.security.tls import records

from .conftest import Given
from .test_handshakes import Wire, client, load


class Outer:
    """An SSLObject of an interpreter that has no inner object."""

    def __init__(self, wrapped: ssl.SSLObject) -> None:
        self.read = wrapped.read


@pytest.mark.parametrize("interpreter", [lambda wrapped: wrapped, Outer])
def test_reads_return_one_record_each(given: Given, ca: Pair, interpreter: Callable[[ssl.SSLObject], object]) -> None:
    wire = Wire(client(ca), load(given()).server, "broker1")
    assert wire.run() == ["", ""]
    read = records.reader(cast("ssl.SSLObject", interpreter(wire.server)))
    with memoryview(bytearray(100)) as room:
        with pytest.raises(ssl.SSLWantReadError):
            read(100, room)
        for record in (b"one", b"record"):
            wire.client.write(record)
        assert read(100, room[100:]) == 0
        assert [read(2, room), bytes(room[:2])] == [2, b"on"]
        assert [read(100, room[2:]), bytes(room[:3])] == [1, b"one"]
        assert [read(100, room[3:]), bytes(room[:9])] == [6, b"onerecord"]
        with pytest.raises(ssl.SSLWantReadError):
            wire.client.unwrap()
        assert read(100, room) == 0
