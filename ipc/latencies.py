"""How long requests take: a worker's histograms by API and stage.

Layout    : region `latencies-<role>`: for each API key below KEYS and each stage, WORDS words. Word n below SUM counts
            requests of less than 2^n and at least 2^(n-1) ns; word SUM is the sum of their times in ns.
Owner     : the worker of that role; it creates the region at its first start, the supervisor unlinks it at the stop.
Writers   : that worker alone. Others read.
Lock      : none; single words. A reader may see a request in one stage and not yet in the next, or counted without
            its time.
Crash rule: the region outlives its worker, and the next worker of that role continues its counts. The worker stores
            them ten times a second: those of the last moment are lost with it.
"""

from __future__ import annotations

from odradek.ipc.region import Region, RegionError

KEYS = 96
STAGES = ("queue", "local", "remote", "total", "at once", "throttle", "send")
"""Until its turn in the round that received it; the worker's own work; the wait for records, followers, the disk or
another process; all of them. `at once`: both local and total of pipelined requests that have neither queue nor remote.
`throttle`: the throttle times in answers; `send`: the time until the kernel has taken an answer, and what was queued
behind it meanwhile, if it did not take it at once. Both are no part of the others, and hold none of 0 ns."""
QUEUE, LOCAL, REMOTE, TOTAL, AT_ONCE, THROTTLE, SEND = range(len(STAGES))
WORDS = 56  # the last count is of less than 2^54 ns, which are 208 days
SUM = WORDS - 1
ROW = len(STAGES) * WORDS
SIZE = KEYS * ROW * 8  # bytes
_KIND = "latencies"


def open_own(prefix: str, role: int, incarnation: int) -> memoryview:
    """The words of the worker `role`, which calls this. SharedMemoryFull, RegionError."""
    try:
        region = Region.attach(_name(prefix, role), _KIND)
        if region.incarnation == incarnation:
            return region.words
    except RegionError:
        pass
    return Region.create(_name(prefix, role), SIZE, _KIND, incarnation).words


def read(prefix: str, role: int) -> memoryview:
    """The words of a worker, for a reader. RegionError: there are none."""
    return Region.attach(_name(prefix, role), _KIND).words


def _name(prefix: str, role: int) -> str:
    return f"{prefix}latencies-{role}"
