"""The API versions that releases of Apache Kafka offer to clients, for `odradek.api.versions.like`.

From Apache Kafka 3.9.1 and 4.1.0, `ApiKeys.apisForListener(BROKER)`: what a broker with KRaft offers, without unstable
versions, and without the APIs that this broker does not serve. 4.1 offers Produce from version 0, since older
librdkafka take it for a broker that compresses nothing otherwise (KAFKA-18659), but serves it from version 3: a request
of an earlier one ends the connection, as with 4.1.0 itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odradek.workers.dispatch.api import Api

Versions = Mapping[int, tuple[int, int]]

# fmt: off
_VERSIONS: Mapping[str, Versions] = {
    "3.9": {
        0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 8: (0, 9), 9: (0, 9), 10: (0, 6), 11: (0, 9), 12: (0, 4),
        13: (0, 5), 14: (0, 5), 15: (0, 5), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (0, 7), 20: (0, 6),
        21: (0, 2), 22: (0, 5), 23: (0, 4), 24: (0, 5), 25: (0, 4), 26: (0, 4), 27: (0, 1), 28: (0, 4),
        29: (0, 3), 30: (0, 3), 31: (0, 3), 32: (0, 4), 33: (0, 2), 35: (0, 4), 36: (0, 2), 37: (0, 3),
        38: (0, 3), 39: (0, 2), 40: (0, 2), 41: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 0),
        46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 60: (0, 1), 61: (0, 0),
        65: (0, 0), 66: (0, 1), 74: (0, 0), 75: (0, 0),
    },
    "4.1": {
        0: (0, 13), 1: (4, 18), 2: (1, 10), 3: (0, 13), 8: (2, 9), 9: (1, 9), 10: (0, 6), 11: (0, 9),
        12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7),
        20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 1),
        28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4), 33: (0, 2), 35: (1, 4), 36: (0, 2),
        37: (0, 3), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1),
        45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 60: (0, 2),
        61: (0, 0), 65: (0, 0), 66: (0, 2), 74: (0, 1), 75: (0, 0),
    },
}
# fmt: on
_SERVED_FROM: Mapping[str, Mapping[int, int]] = {"3.9": {}, "4.1": {0: 3}}


def limited(rows: Mapping[int, Api], like: str) -> dict[int, Api]:
    """The rows that this broker and that Apache Kafka have, with the versions of both; those between brokers stay."""
    found = {}
    for key, row in rows.items():
        if row.between_brokers:
            found[key] = row
        elif key in _VERSIONS[like]:
            first, last = _VERSIONS[like][key]
            first, last = max(first, row.versions[0]), min(last, row.versions[1])
            if first <= last:
                found[key] = replace(row, versions=(first, last), served_from=_SERVED_FROM[like].get(key, 0))
    return found
