"""Differences of topics, configs, ACLs and elections."""

from __future__ import annotations

import math
import re
from typing import Any

from odradek.cluster.configs import configdef
from odradek.cluster.configs.configtypes import READ_ONLY
from odradek.protocol import errors

from ..compare import Field, errors_in
from ..pair import Difference
from ..plain import NOTHING
from .codes import is_code

CLIENT_METRICS = 16
ACLS = {"DescribeAcls", "CreateAcls", "DeleteAcls"}
ACL_CODES = ("resource_type", "resource_type_filter", "resource_pattern_type", "pattern_type_filter", "operation",
             "permission_type")  # fmt: skip
CONFIG_READ_ONLY = re.compile(r"configs\[(.*)\]/read_only$")


def no_operation(difference: Difference) -> bool:
    if difference.step.api != "IncrementalAlterConfigs" or any(field.theirs != -1 for field in difference.fields):
        return False
    return any(config.config_operation not in range(4) for config in _configs(difference))


def without_effect(difference: Difference) -> bool:
    if difference.step.api == "DescribeConfigs":
        left = [field for field in difference.fields if not _is_no_default(difference, field)]
        return bool(left) and all(_without_effect_here(field) for field in left)
    if difference.step.api not in ("AlterConfigs", "IncrementalAlterConfigs"):
        return False
    keys = [configdef.broker_key(config.name) for config in _configs(difference)]
    refused = all(is_code(field, {errors.INVALID_REQUEST}, {0}) for field in difference.fields)
    return refused and any(key is not None and key.change == READ_ONLY for key in keys)


def _without_effect_here(field: Field) -> bool:
    """Whether a config is returned as read-only, and is so."""
    found = CONFIG_READ_ONLY.search(field.path)
    key = configdef.broker_key(found[1]) if found else None
    return key is not None and key.change == READ_ONLY and field.ours is True


def of_client_metrics(difference: Difference) -> bool:
    """Only client metrics differ, except that all resources of the same request are refused."""
    if difference.step.api == "DescribeConfigs":
        asked = any(resource.resource_type == CLIENT_METRICS for resource in difference.request.resources)
        return asked and errors_in(difference.ours) == {errors.INVALID_REQUEST}
    if difference.step.api not in ("AlterConfigs", "IncrementalAlterConfigs"):
        return False
    ours, theirs = (_by_type(answer) for answer in (difference.ours, difference.theirs))
    return {kind for kind in {*ours, *theirs} if ours.get(kind) != theirs.get(kind)} == {CLIENT_METRICS}


def _by_type(answer: Any) -> dict[int, list[Any]]:
    """The rows of a response by type of resource."""
    found: dict[int, list[Any]] = {}
    for row in answer["responses"] if isinstance(answer, dict) else ():
        found.setdefault(row["resource_type"], []).append(row)
    return found


def _configs(difference: Difference) -> list[Any]:
    return [config for resource in difference.request.resources for config in resource.configs]


def config_as_given(difference: Difference) -> bool:
    texts = difference.step.api == "CreateTopics" and all(one.path.endswith("/value") for one in difference.fields)
    return texts and all(_is_same_number(field.ours, field.theirs) for field in difference.fields)


def _is_same_number(one: Any, other: Any) -> bool:
    try:
        return float(one) == float(other)
    except (TypeError, ValueError):
        return False


def nameless(difference: Difference) -> bool:
    if difference.step.api != "Metadata" or errors_in(difference.theirs) - {0} != {-1}:
        return False
    nobodys = [row for row in difference.request.topics or () if row.name is None and row.topic_id in NOTHING]
    return bool(nobodys) and errors.INVALID_TOPIC_EXCEPTION in errors_in(difference.ours)


def no_default(difference: Difference) -> bool:
    return all(_is_no_default(difference, field) for field in difference.fields)


def _is_no_default(difference: Difference, field: Field) -> bool:
    version = difference.step.api, difference.step.version
    is_flag = field.path.endswith("/is_default") and field.ours and not field.theirs
    return version == ("DescribeConfigs", 0) and bool(is_flag)


def unknown_acl(difference: Difference) -> bool:
    return difference.step.api in ACLS and difference.theirs == "closed" and _has_zero(difference.request)


def _has_zero(row: Any) -> bool:
    rows = [value for name in type(row).__slots__ if isinstance(value := getattr(row, name, None), list)]
    return any(getattr(row, name, None) == 0 for name in ACL_CODES) or any(
        _has_zero(one) for few in rows for one in few
    )


def no_number(difference: Difference) -> bool:
    """The difference is one entity's."""
    refused = bool(difference.fields) and all(
        is_code(field, {errors.INVALID_REQUEST}, {0}) for field in difference.fields
    )
    if difference.step.api != "AlterClientQuotas" or not refused:
        return False
    return any(math.isnan(op.value) for entry in difference.request.entries for op in entry.ops)


def altered_together(difference: Difference) -> bool:
    """One user's result differs: the request alters the user more than once, or has an empty salt or password."""
    known = difference.step.api == "AlterUserScramCredentials" and isinstance(difference.ours, dict)
    if not known or len(difference.ours["results"]) != 1:
        return False
    request, (row,) = difference.request, difference.ours["results"]
    of = [one for one in (*request.deletions, *request.upsertions) if one.name == row["user"]]
    empty = any(not (one.salt and one.salted_password) for one in request.upsertions if one.name == row["user"])
    return len(of) > 1 or (empty and row["error_code"] == errors.UNACCEPTABLE_CREDENTIAL)


def no_elections(difference: Difference) -> bool:
    if difference.step.api != "ElectLeaders" or not isinstance(difference.theirs, dict):
        return False
    left = [row for row in difference.theirs["replica_election_results"] if row["partition_result"]]
    return bool(left == difference.ours["replica_election_results"])
