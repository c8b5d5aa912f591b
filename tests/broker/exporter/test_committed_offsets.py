"""Group names in a log that other programs have written."""

from __future__ import annotations

from odradek.broker.exporter import committed_offsets


def test_any_name_of_a_group_can_be_shown() -> None:
    for name, shown in (("g\u00e9", "g\u00e9"), ("\udcff\udcfe", "\ufffd\ufffd")):
        assert committed_offsets._text(name) == shown
        assert shown.encode()
