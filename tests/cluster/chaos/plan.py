"""The faults of a chaos run, drawn from its seed: the same seed gives the same sequence, whatever its effects.

A run has rounds of a few steps; the load is judged after each round. A run that continues another one takes
its seed and its number of rounds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from .faults import FAULTS, ROLES
from .trial import ANY, CONTROLLER, FIVE_TIMES, LEADER

STEPS = 4
# Seconds of each fault: long enough for its effect (sessions last 6 s), or as long as it takes in any case.
SECONDS = {
    "SIGTERM": (0.2, 3), "SIGKILL": (0, 8), "SIGKILL of all": (0, 2), "SIGKILL of two": (0, 4), "SIGSTOP": (0.5, 12),
    **{f"SIGSTOP of the {role}": (0.3, 9) for role in ROLES}, "SIGKILL of ZooKeeper": (1, 20),
    "SIGSTOP of ZooKeeper": (1, 20), "session closed": (0.5, 3), "session expired": (0, 2), "isolated": (1, 15),
    "cut off from brokers": (1, 15), "cut off from ZooKeeper and clients": (1, 15), "one link cut": (1, 15),
    "incoming packets lost": (1, 15), "packets to brokers lost": (1, 15), "every tenth packet lost": (2, 10),
    "low bandwidth": (2, 10), "disk full": (1, 6), "disk lost": (0, 5), "disk failing": (0.5, 6),
    "fsync takes a second": (2, 8), "clock an hour ahead": (1, 6), "replicas moved off": (0.5, 6),
    "replicas moved off while down": (0, 4), "preferred leader elected": (0.5, 4), "unclean election": (0, 2),
    "min.insync.replicas 1": (1, 6), "min.insync.replicas 3": (1, 6),
}  # fmt: skip
_BRIEF = (0.1, 2)
_BOUNCED = ("SIGTERM", "SIGKILL")
# Faults that use the same resource are not combined.
_ALONE = {
    "SIGKILL of ZooKeeper", "SIGSTOP of ZooKeeper", "session expired", "SIGKILL of two", "SIGKILL of all", "disk lost",
    "replicas moved off while down", "unclean election",
}  # fmt: skip


class Step(NamedTuple):
    """One fault, or five restarts in a row, or two faults at once."""

    kind: str
    whose: str
    seconds: float
    bounce: bool = False
    second: str = ""
    second_whose: str = ""

    def __str__(self) -> str:
        more = f" + {self.second} ({self.second_whose})" if self.second else ""
        return f"{self.kind}{FIVE_TIMES if self.bounce else ''} ({self.whose}){more}, {self.seconds:.1f} s"


class Round(NamedTuple):
    """Steps under one load; `check`: then all brokers are stopped, and every data directory is checked."""

    number: int
    steps: list[Step]
    check: bool


def rounds(seed: int) -> Iterator[Round]:
    """An endless sequence. Each round has its own generator, so that a run can begin with any round."""
    number = 0
    while True:
        rng = random.Random(f"{seed}/{number}")
        yield Round(number, [_step(rng) for _ in range(STEPS)], check=number % 4 == 3)
        number += 1


def _step(rng: random.Random) -> Step:
    kind, whose = rng.choice(list(FAULTS)), rng.choice([LEADER, CONTROLLER, ANY])
    seconds = rng.uniform(*SECONDS.get(kind, _BRIEF))
    shape = rng.random()
    if shape < 0.1:
        return Step(rng.choice(_BOUNCED), whose, rng.uniform(0, 1), bounce=True)
    if shape < 0.4 and kind not in _ALONE:
        second = rng.choice([name for name in FAULTS if name not in _ALONE])
        return Step(kind, whose, seconds, second=second, second_whose=rng.choice([LEADER, CONTROLLER, ANY]))
    return Step(kind, whose, seconds)
