"""What a supervisor loads when it serves already: it serves on without it. Without processes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

from odradek.broker.supervisor import supervisor
from odradek.broker.supervisor.supervisor import Supervisor


def test_supervisor_tries_again_to_listen_for_commands() -> None:
    bus = MagicMock()
    bus.listen.side_effect = [OSError(24, "Too many open files"), None]
    last_steps = MagicMock()
    one = cast(Any, SimpleNamespace(_bus=bus, _last_steps=last_steps, _finish=None, _next_load=-math.inf))
    Supervisor._load_rest(one)
    Supervisor._load_rest(one)
    assert (bus.listen.call_count, one._finish) == (1, None), "not at once"
    one._next_load -= supervisor.LOAD_AGAIN_S
    Supervisor._load_rest(one)
    assert one._finish is last_steps.return_value
