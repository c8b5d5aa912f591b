"""Admin requests that tools of Kafka before 2.4 make by creating a znode: preferred leader election and reassignment.

The controller deletes the node when the request is done or, for reassignments, has started: their progress is in the
topics' nodes. One node is one request; a tool waits until the node is deleted before it makes another.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import NoNode, NotEmpty

if TYPE_CHECKING:
    from odradek.broker.controller.elected.elected import Elected

log = logging.getLogger(__name__)

PATHS = (znodes.PREFERRED_ELECTION, znodes.REASSIGN_PARTITIONS)


def run(elected: Elected) -> None:
    """Carry out the requests, and watch for the next. Raises TreeUnavailable."""
    for path, errand in zip(PATHS, (_prefer, _move), strict=True):
        if elected.tree.exists(path, watch=True) is None:
            continue
        data = elected.tree.find(path)
        if data is not None:
            errand(elected, data)
            _drop(elected, path)
            elected.tree.exists(path, watch=True)


def _prefer(elected: Elected, data: bytes) -> None:
    partitions = notices.decode_partitions(data)
    refused = elected.elections.elect(partitions, unclean=False)
    log.info("preferred leader election: %d partitions requested, %d not elected", len(partitions), len(refused))


def _move(elected: Elected, data: bytes) -> None:
    for partition, error in elected.reassignments.request(notices.decode_reassignment(data)).items():
        log.warning("%s-%d not reassigned: %s", *partition, error)


def _drop(elected: Elected, path: str) -> None:
    try:
        elected.tree.delete(path)
    except NoNode:
        pass
    except NotEmpty:
        log.warning("%s not deleted: it has child nodes", path)
