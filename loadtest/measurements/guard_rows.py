"""What an authorizer and quotas cost on the paths of Produce and Fetch, of Odradek alone, by turns.

    python -m odradek.loadtest.bench --rows guards

A quota that no client reaches costs what counting costs. The ACLs are those of the loads' topics, and a thousand of
other topics, half of them prefixes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from odradek.loadtest.harness.brokers import Odradek
from odradek.loadtest.measurements.rows import ROWS as PLAIN_ROWS

OPEN, FEW, MANY, QUOTA = NAMES = ("no authorizer", "two ACLs", "1,002 ACLs", "a quota")
ROWS = tuple(
    replace(row, key=f"guard-{row.key}", amqp=None, amqp_fill=None)
    for row in PLAIN_ROWS
    if row.key in ("batch1", "one", "batch50", "tail1")
)
_AUTHORIZED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # the principal that makes the ACLs
}
_OTHERS = 1000


@contextmanager
def brokers(folder: Path) -> Iterator[list[Odradek]]:
    """Started brokers, one of each of NAMES."""
    with ExitStack() as stack:
        found = [_started(stack, folder / f"guard-{number}", name) for number, name in enumerate(NAMES)]
        add_acls(found[1], 0)
        add_acls(found[2], _OTHERS)
        add_quota(found[3], 1 << 40)
        yield found


def _started(stack: ExitStack, folder: Path, name: str) -> Odradek:
    broker = Odradek(folder, _AUTHORIZED if name in (FEW, MANY) else {})
    broker.name = name
    stack.enter_context(broker)
    broker.start()
    return broker


def add_acls(broker: Odradek, others: int) -> None:
    """Allow every user everything on all topics and the cluster, and make ACLs of other topics."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    kinds = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    patterns = [(ResourceType.TOPIC, f"other-{number}", kinds[number % 2]) for number in range(others)]
    patterns += [(ResourceType.TOPIC, "*", kinds[0]), (ResourceType.BROKER, "kafka-cluster", kinds[0])]
    everything, allow = AclOperation.ALL, AclPermissionType.ALLOW
    acls = [AclBinding(*pattern, "User:ANONYMOUS", "*", everything, allow) for pattern in patterns]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # its results end with it
    for future in admin.create_acls(acls).values():
        future.result(60)


def add_quota(broker: Odradek, bytes_a_second: int, *entity: str) -> None:
    """A produce and a fetch quota; without `entity`, options of `odradek configs`, the default of all client ids."""
    who = entity or ("--client-defaults",)
    quotas = f"producer_byte_rate={bytes_a_second},consumer_byte_rate={bytes_a_second}"
    words = ["configs", "--bootstrap-server", broker.bootstrap, "--alter", *who, "--add-config", quotas]
    subprocess.run([sys.executable, "-m", "odradek.broker", *words], check=True, capture_output=True)
