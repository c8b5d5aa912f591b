"""Requests between this broker's own processes: negative API keys, bodies in JSON.

To the controller:

    LOOK_FOR_BROKERS {}                                     → {}
    AUTO_CREATE   {"topics": [name]}                        → {"errors": {name: [code, message | null]}}
    PRODUCER_IDS  {}                                        → {"first": n, "count": n} or {"error": code}
    COMMIT_V0     {"group": g, "offsets": [[t, p, offset]]} → {"errors": [[t, p, code]]}
    FETCH_V0      {"group": g, "partitions": [[t, p]]}      → {"offsets": [[t, p, offset | null, code]]}

To the coordinator:

    VERIFY        {"transactional_id": id, "producer": [producer id, epoch], "partition": [t, p]} → {"error": code}

A process sends LOOK_FOR_BROKERS when a follower's request, or markers, come from an address of no registered broker:
the sender may have registered just now, or moved. The answer to AUTO_CREATE waits until every live worker knows the
topics. COMMIT_V0 and FETCH_V0 carry 0.8's offset commits, stored under /consumers in the metadata tree; a topic or
partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION. VERIFY checks with the transaction coordinator, on this
or another broker, that the partition is part of the producer's transaction (KIP-890).
"""

from __future__ import annotations

import json
from typing import Any

LOOK_FOR_BROKERS = -1
AUTO_CREATE = -3
COMMIT_V0 = -8
FETCH_V0 = -9
PRODUCER_IDS = -22
VERIFY = -24


def encode(body: dict[str, Any]) -> bytes:
    """The body of a request or an answer."""
    return json.dumps(body, separators=(",", ":")).encode()


def decode(body: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    return dict(json.loads(body))
