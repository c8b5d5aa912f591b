"""docs/states.md: the states of connections, groups and transactions, drawn from their tables.

`python -m tests.tools.state_diagrams` writes it (`make docs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek.groups import group
from odradek.groups.transactions import states
from odradek.protocol.errors import Error
from odradek.security.sasl import exchange_states
from odradek.workers.net import connection_state

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
Edge = tuple[str, str, str]  # from, to, what for

HEAD = """# States of connections, groups and transactions

Written by `make docs` from the tables in `workers/net/connection_state.py`, `security/sasl/exchange_states.py`,
`groups/group.py` and `groups/transactions/states.py`; a test fails when this page is not what they say.
"""
CONNECTIONS = """
## Connections of a worker

`workers/net/connection_state.py`. A state is a set of reasons why the next request may not be taken now; READY is the
empty one. What each event makes of them:

"""
AUTHENTICATION = """
## Authentication by SASL

`security/sasl/exchange_states.py`. What has no arrow in a state leads to Failed.
"""
GROUPS = """
## Classic consumer groups

`groups/group.py`, `TRANSITIONS`; `groups/rebalance.py` goes by it.
"""
TRANSACTIONS = """
## Transactional ids

`groups/transactions/states.py`. An arrow has the requests (or what else) that lead along it. PrepareEpochFence is only
passed through on the way to PrepareAbort, and Dead is only written as a tombstone.
"""
REQUESTS = """
What each request does in each state: the state it leads to, or the error it gets.
"""
TABLES: dict[str, Mapping[states.State, states.State | Error]] = {
    "InitProducerId": states.INIT,
    "AddPartitionsToTxn": states.ADD,
    "EndTxn, commit": states.COMMIT,
    "EndTxn, abort": states.ABORT,
}


def page() -> str:
    """The whole file."""
    drawn = (diagram(_group_edges(), group.State.EMPTY.value), diagram(_edges(), states.State.EMPTY.title))
    authentication = AUTHENTICATION + diagram(_exchange_edges(), exchange_states.State.INITIAL_REQUEST.value)
    head = HEAD + CONNECTIONS + _connections() + authentication
    return head + GROUPS + drawn[0] + TRANSACTIONS + drawn[1] + REQUESTS + _table()


def _connections() -> str:
    lines = ["| event | adds | removes |", "|---|---|---|"]
    for event, table in connection_state.EVENTS.items():
        adds, kept = table[connection_state.READY], table[sum(connection_state.REASONS.values())]
        added = [name for name, bit in connection_state.REASONS.items() if adds & bit]
        removed = [name for name, bit in connection_state.REASONS.items() if not kept & bit]
        lines.append(f"| {event} | {', '.join(added)} | {', '.join(removed)} |")
    return "\n".join(lines).replace("| CLOSE |  |", "| CLOSE | CLOSED, for good |") + "\n"


def diagram(edges: Iterable[Edge], first: str) -> str:
    """A Mermaid diagram: one arrow between two states, with all that leads along it."""
    labels: dict[tuple[str, str], list[str]] = {}
    for origin, target, label in edges:
        labels.setdefault((origin, target), []).append(label)
    lines = [f"    [*] --> {first}"]
    for (origin, target), found in labels.items():
        words = ", ".join(filter(None, found))
        lines.append(f"    {origin} --> {target}" + (f": {words}" if words else ""))
    return "\n".join(["\n```mermaid", "stateDiagram-v2", *lines, "```\n"])


def _exchange_edges() -> Iterable[Edge]:
    for origin, row in exchange_states.TRANSITIONS.items():
        for event, target in row.items():
            yield origin.value, target.value, event.value
        if origin not in exchange_states.ENDED:
            yield origin.value, exchange_states.State.FAILED.value, ""


def _group_edges() -> Iterable[Edge]:
    for origin, targets in group.TRANSITIONS.items():
        for target, why in targets.items():
            if target is not origin:
                yield origin.value, target.value, why


def _edges() -> Iterable[Edge]:
    """Of transactions: by requests, and then those of `FROM` that no request leads along."""
    named = [
        (origin, step, name)
        for name, table in TABLES.items()
        for origin, step in table.items()
        if isinstance(step, states.State)
    ]
    named += [(origin, target, "markers written") for origin, target in states.COMPLETED.items()]
    named += [(origin, states.State.DEAD, "expiry") for origin in states.State if origin in states.EXPIRES]
    known = {(origin, target) for origin, target, _ in named}
    for target, origins in states.FROM.items():
        named += [
            (origin, target, "") for origin in states.State if origin in origins and (origin, target) not in known
        ]
    return [(origin.title, target.title, label) for origin, target, label in named]


def _table() -> str:
    """The four tables of requests as one."""
    lines = [f"\n| state | {' | '.join(TABLES)} |", f"|---{'|---' * len(TABLES)}|"]
    for state in states.INIT:
        lines.append(f"| {state.title} | {' | '.join(_said(table[state]) for table in TABLES.values())} |")
    return "\n".join(lines) + "\n"


def _said(step: states.State | Error) -> str:
    if isinstance(step, states.State):
        return step.title
    return step.name if step else "no error: a retry"


def main() -> None:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
