"""Records of connections that a worker takes over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.workers.takeover import takeover_messages
from odradek.workers.takeover.takeover_messages import Kept

SESSIONS = st.none() | st.dictionaries(st.text(), st.integers() | st.none() | st.text() | st.booleans())
KEPT = st.builds(
    Kept, st.text(), st.text(), st.integers(0, 65535), st.tuples(st.text(), st.text()), st.booleans(), SESSIONS,
    st.binary(), st.integers(0, 1 << 60), st.binary(),
)  # fmt: skip


@given(st.integers(0, 1 << 60), KEPT)
def test_record_is_read_as_it_was_written(number: int, kept: Kept) -> None:
    message = takeover_messages.give(number, kept)
    assert takeover_messages.number_of(message) == number
    assert takeover_messages.kept(message) == kept


@given(KEPT, st.data())
def test_record_that_is_cut_or_of_another_version_raises_value_error_only(kept: Kept, data: st.DataObject) -> None:
    message = takeover_messages.give(0, kept)
    head = message[: len(message) - len(kept.received)]
    with pytest.raises(ValueError):
        takeover_messages.kept(head[: data.draw(st.integers(1, len(head) - 1))])
    with pytest.raises(ValueError, match="version"):
        takeover_messages.kept(message[:9] + (takeover_messages.NEWEST + 1).to_bytes(2, "big") + message[11:])


def test_range_of_versions_is_read_as_it_was_written() -> None:
    assert takeover_messages.range_of(takeover_messages.versions(3, 7)) == (3, 7)
