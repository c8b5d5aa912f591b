"""Admin requests that tools of Kafka before 2.4 make by creating a znode: preferred leader election and reassignment.

The controller deletes the node when the request is done or, for reassignments, has started: their progress is in the
topics' nodes. One node is one request; a tool waits until the node is deleted before it makes another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.broker.controller.elected.leader_election import Elections
from odradek.broker.controller.elected.reassignment import Reassignments
from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import NoNode, NotEmpty, Tree

log = logging.getLogger(__name__)

PATHS = (znodes.PREFERRED_ELECTION, znodes.REASSIGN_PARTITIONS)


def run(tree: Tree, elections: Elections, reassignments: Reassignments) -> None:
    """Carry out the requests, and watch for the next. Raises TreeUnavailable."""
    _run(tree, znodes.PREFERRED_ELECTION, lambda data: _elect(elections, data))
    _run(tree, znodes.REASSIGN_PARTITIONS, lambda data: _reassign(reassignments, data))


def _run(tree: Tree, path: str, request: Callable[[bytes], None]) -> None:
    if tree.exists(path, watch=True) is None:
        return
    data = tree.find(path)
    if data is not None:
        request(data)
        _drop(tree, path)
        tree.exists(path, watch=True)


def _elect(elections: Elections, data: bytes) -> None:
    partitions = notices.decode_partitions(data)
    refused = elections.elect(partitions, unclean=False)
    log.info("preferred leader election: %d partitions requested, %d not elected", len(partitions), len(refused))


def _reassign(reassignments: Reassignments, data: bytes) -> None:
    for partition, error in reassignments.request(notices.decode_reassignment(data)).items():
        log.warning("%s-%d not reassigned: %s", *partition, error)


def _drop(tree: Tree, path: str) -> None:
    try:
        tree.delete(path)
    except NoNode:
        pass
    except NotEmpty:
        log.warning("%s not deleted: it has child nodes", path)
