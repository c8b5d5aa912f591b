"""Which SCRAM credentials users have (KIP-554's description: mechanisms and iterations, nothing secret)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka.errors import ResourceNotFoundError
from kafka.protocol.admin import DescribeUserScramCredentialsRequest

from odradek.broker.commands._shared.client import Cluster, check
from odradek.security.sasl.scram_keys import BY_TYPE


def described(cluster: Cluster, users: Iterable[str] = ()) -> dict[str, list[tuple[str, int]]]:
    """(mechanism, iterations) of each of these users that has any; of all users if none is given. RequestFailed."""
    named = [DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
    answer = cluster.send(DescribeUserScramCredentialsRequest(users=named or None))
    check(answer.error_code, answer.error_message)
    for row in answer.results:
        if row.error_code != ResourceNotFoundError.errno:
            check(row.error_code, row.error_message)
    return {
        row.user: [(BY_TYPE[one.mechanism].value, one.iterations) for one in row.credential_infos]
        for row in answer.results
        if row.credential_infos
    }
