"""The versions that all processes of a broker must agree on. `odradek upgrade` compares them before it replaces any.

An upgrade runs processes of two versions of the code side by side. They share memory (`LAYOUT`, ipc.region), and they
send each other messages (`MESSAGES`: ipc.forward, ipc.handoff, cluster.internal, the control bus). Raise the number
when a process of the former version would misread what one of this version writes, or the other way round: the upgrade
is then refused, and the broker must be restarted. A new column in reserved words, a field that readers ignore, or a
message that they ignore need no new number. The file of the metadata has its own, since a new controller upgrades it
for good, and the former code could not go on with it. tests/broker/process/test_versions.py fails when a layout changes
and no number does.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.ipc import region

MESSAGES = 1
_WHAT = {
    "layout": "layout of shared memory",
    "messages": "version of messages between processes",
    "metadata": "format of odradek-metadata.db",
}


def here() -> dict[str, int]:
    """Those of this process."""
    from odradek.cluster.tree import embedded  # with SQLite, which not each process needs

    return {"layout": region.LAYOUT, "messages": MESSAGES, "metadata": embedded.VERSION}


def difference(installed: Mapping[str, object], running: Mapping[str, object] | None = None) -> str:
    """Why processes with these versions cannot run beside `running` ones (by default this one), in a line; else "".

    A version that is missing is another one: code that does not know it may do anything.
    """
    broker = here() if running is None else running
    for name in here():
        ours, theirs = (found.get(name, "an unknown one") for found in (broker, installed))
        if ours != theirs:
            return f"the {_WHAT[name]} is {ours} here and {theirs} in the installed code: stop the broker and start it"
    return ""
