"""`odradek upgrade` under 1,000 busy connections that do not retry: no error; the longest gap is printed."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from .busy_connections.trial import BusyConnections
from .test_upgrade import upgrade

COUNT, PERIOD_S = 1000, 1.0


@pytest.mark.live
@pytest.mark.long
@pytest.mark.timeout(600)
def test_thousand_busy_connections_without_retries_see_no_error(fresh_broker: Any) -> None:
    """`tests/LONG.md` keeps what it prints: first a time without an upgrade, then each upgrade."""
    broker = fresh_broker(odradek_workers=2)
    with closing(BusyConnections(broker, COUNT, PERIOD_S)) as busy:
        busy.await_all(COUNT)
        print("without an upgrade:", json.dumps(busy.await_all(2 * COUNT)))
        for number in range(3):
            upgrade(broker)
            seen = busy.measured()
            print(f"upgrade {number + 1}:", json.dumps(seen))
            assert seen["faults"] == []
        busy.finish()
