"""Planned scripts of groups and transactions, which random choices hardly ever produce.

`Step.given` has the fields that the plan sets; the others are drawn as in any other script.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .sequences import Api, Pools, Script, Step

WIDE, WIDTH = b"seq-wide", 100
"""A topic and its partitions: with metadata of 30 KB each, a commit of half of them is too large to append."""
LONG = b"m" * 30_000
LARGE = b"B" * 1_200_000  # a group with such a member is too large to append
CROWD = 200

Given = Mapping[str, Sequence[Any]]
Plan = Callable[[random.Random], list[tuple[str, Given]]]

_ALONE: Given = {"generation_id": (-1,), "generation_id_or_member_epoch": (-1,), "member_id": (b"",)}
_WIDE: Given = {
    **_ALONE, "topics.count": (1,), "partitions.count": (WIDTH,), "name": (WIDE,),
    "partition_index": tuple(range(WIDTH)), "committed_metadata": (LONG,), "group_instance_id": (b"",),
}  # fmt: skip
_NEW: Given = {"producer_id": (-1,), "producer_epoch": (-1,)}
_ONE: Pools = {
    "group_instance_id": (b"own",), "member_id": [], "generation_id": [], "generation_id_or_member_epoch": [],
    "producer_id": [], "producer_epoch": [], "v3_and_below_producer_id": [], "v3_and_below_producer_epoch": [],
    "transactional_id": (b"tx-own",), "v3_and_below_transactional_id": (b"tx-own",), "group_id": (b"own",),
}  # fmt: skip
"""Pools of the only client of some stories: it uses only learnt ids, with or without an instance id."""
_JOINS: Given = {"session_timeout_ms": (6000,), "protocols.count": (1,), "JoinGroup.name": (b"range",)}


def large_member(rng: random.Random) -> list[tuple[str, Given]]:
    """A group that is too large to store, and requests to that group afterwards."""
    large = {**_JOINS, "metadata": (LARGE,)}
    small = {**_JOINS, "metadata": (b"",)}
    rest: list[tuple[str, Given]] = [
        ("DescribeGroups", {}), ("OffsetCommit", {}), ("JoinGroup", small), ("JoinGroup", small), ("SyncGroup", {}),
        ("Heartbeat", {}), ("LeaveGroup", {}), ("DeleteGroups", {}),
    ]  # fmt: skip
    first = {**large, "member_id": (b"",), "generation_id": (-1,)}
    return [("JoinGroup", first), *[("SyncGroup", {})] * 3, *rng.sample(rest, len(rest))]


def large_offsets(rng: random.Random) -> list[tuple[str, Given]]:
    """Offset commits too large to append, plain and in a transaction that is then ended, and small ones after them."""
    plain, small = ("OffsetCommit", _WIDE), ("TxnOffsetCommit", _ALONE)
    rest: list[tuple[str, Given]] = [
        ("EndTxn", {}),
        ("OffsetFetch", {}),
        plain,
        small,
        ("DeleteGroups", {}),
        ("OffsetDelete", {}),
    ]
    begun: list[tuple[str, Given]] = [("InitProducerId", {}), ("AddOffsetsToTxn", {}), ("TxnOffsetCommit", _WIDE)]
    return [*begun, *rng.sample(rest, len(rest)), *begun, ("EndTxn", {}), small]


def shared_id(rng: random.Random) -> list[tuple[str, Given]]:
    """Producers that fence each other and end transactions in earlier epochs."""
    names = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "EndTxn")
    begun: list[tuple[str, Given]] = [("InitProducerId", {})] * 3
    return begun + [(rng.choice(names), {}) for _ in range(25)]


def crowd(rng: random.Random) -> list[tuple[str, Given]]:
    """Hundreds of members of one group, which leave together."""
    statics = tuple(b"crowd-%d" % number for number in range(CROWD))
    left: Given = {"members.count": (CROWD, 2 * CROWD), "group_instance_id": statics, "LeaveGroup.member_id": (b"",)}
    joins: list[tuple[str, Given]] = [
        ("JoinGroup", {**_JOINS, "group_instance_id": (name,), "member_id": (b"",)}) for name in statics
    ]
    return [*joins, ("DescribeGroups", {}), ("SyncGroup", {}), ("LeaveGroup", left), ("LeaveGroup", left)]


def many_groups(rng: random.Random) -> list[tuple[str, Given]]:
    """Hundreds of groups and transactional ids, described and deleted together."""
    groups = tuple(b"many-%d" % number for number in range(CROWD))
    ids = tuple(b"tx-many-%d" % number for number in range(CROWD))
    named = dict.fromkeys(("groups", "groups_names", "group_id", "coordinator_keys", "transactional_ids"), groups)
    counts = {f"{name}.count": (CROWD, 2 * CROWD) for name in named}
    all_of: Given = {**named, **counts, "transactional_ids": ids}
    made: list[tuple[str, Given]] = [("OffsetCommit", {**_ALONE, "group_id": (name,)}) for name in groups]
    made += [("InitProducerId", {"transactional_id": (name,)}) for name in ids[:50]]
    asked: list[tuple[str, Given]] = [
        (name, all_of)
        for name in ("FindCoordinator", "OffsetFetch", "DescribeGroups", "ListGroups", "DescribeTransactions")
    ]
    return [*made, *rng.sample(asked, len(asked)), ("DeleteGroups", all_of), ("DeleteGroups", all_of)]


PLANS: tuple[Plan, ...] = (large_member, large_offsets, shared_id, crowd, many_groups)


def story(name: str, plan: Plan, apis: Sequence[Api], clients: list[Pools]) -> Script:
    """A script with this plan, by these clients; by the second alone if each request needs the answer before."""
    rng = random.Random(name)
    if plan in (large_member, large_offsets):
        clients = [{**clients[1], **_ONE}]
    known = {api.name: api for api in apis}
    steps = []
    for number, (api, given) in enumerate(plan(rng)):
        version = rng.randint(*known[api].versions)
        hasty = plan is crowd and api == "JoinGroup"
        steps.append(Step(rng.randrange(len(clients)), api, version, f"{name}/{number}", given, hasty))
    return Script(f"{name} ({plan.__name__})", clients, steps)
