"""Implements `odradek consumer-groups --reset-offsets` (KIP-122, KIP-175)."""

from __future__ import annotations

import csv
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from kafka.structs import OffsetAndMetadata, TopicPartition

from odradek.broker.commands._shared.client import Cluster, Partition, RequestFailed, check, explain
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.commands.consumer_groups.delete_groups import partitions_named
from odradek.broker.commands.consumer_groups.describe_groups import Group, Options, chosen, committed, described
from odradek.broker.commands.consumer_groups.group_tables import print_new_offsets
from odradek.broker.errors import FAILED, OK, OdradekError

EARLIEST, LATEST = -2, -1

Offsets = dict[Partition, int]

_DURATION = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


def reset(cluster: Cluster, options: Options) -> int:
    """Set or show new offsets of groups without members; returns 1 when a group was skipped."""
    if not options["execute"] and not options["dry_run"]:
        click.echo("WARN: without --execute no offset changes; --dry-run suppresses this warning.", err=True)
    groups = described(cluster, chosen(cluster, options))
    inactive = [group for group in groups.values() if _is_inactive(group)]
    plan = {group.name: new_offsets(cluster, options, group.name) for group in inactive}
    if options["execute"]:
        for name, offsets in plan.items():
            _commit(cluster, name, offsets)
    _print(plan, options)
    return OK if len(inactive) == len(groups) else FAILED


def _is_inactive(group: Group) -> bool:
    if group.state in ("Empty", "Dead"):
        return True
    click.echo(
        f"Error: offsets can only be reset if the group '{group.name}' is inactive, "
        f"but the current state is {group.state}.",
        err=True,
    )
    return False


def new_offsets(cluster: Cluster, options: Options, group: str) -> Offsets:
    """The group's new offsets by partition."""
    if options["target"] == "--from-file":
        planned = _from_file(Path(options["from_file"]), list(options["group"])).get(group)
        if planned is None:
            raise OdradekError(f"{options['from_file']} has no offsets for group {group}")
        return _within_range(cluster, planned)
    if options["all_topics"]:
        partitions = sorted(committed(cluster, group))
    else:
        partitions, failed = partitions_named(cluster, options["topic"])
        for topic, code in failed.items():
            raise RequestFailed(code, f"topic {topic}: {explain(code)}")
    return _TARGETS[options["target"]](cluster, options, group, partitions)


def _to_earliest(cluster: Cluster, _options: Options, _group: str, partitions: list[Partition]) -> Offsets:
    return _listed(cluster, partitions, EARLIEST)


def _to_latest(cluster: Cluster, _options: Options, _group: str, partitions: list[Partition]) -> Offsets:
    return _listed(cluster, partitions, LATEST)


def _to_current(cluster: Cluster, _options: Options, group: str, partitions: list[Partition]) -> Offsets:
    now = committed(cluster, group)
    return _listed(cluster, [one for one in partitions if one not in now], LATEST) | {
        one: now[one] for one in partitions if one in now
    }


def _to_offset(cluster: Cluster, options: Options, _group: str, partitions: list[Partition]) -> Offsets:
    offset: int = options["to_offset"]
    return _within_range(cluster, dict.fromkeys(partitions, offset))


def _shift_by(cluster: Cluster, options: Options, group: str, partitions: list[Partition]) -> Offsets:
    now = committed(cluster, group)
    for topic, index in partitions:
        if (topic, index) not in now:
            raise OdradekError(f"cannot shift {topic}-{index}: group {group} has no committed offset")
    return _within_range(cluster, {one: now[one] + options["shift_by"] for one in partitions})


def _to_datetime(cluster: Cluster, options: Options, _group: str, partitions: list[Partition]) -> Offsets:
    return _at_time(cluster, partitions, parse_datetime(options["to_datetime"]))


def _by_duration(cluster: Cluster, options: Options, _group: str, partitions: list[Partition]) -> Offsets:
    return _at_time(cluster, partitions, int(time.time() * 1000) - parse_duration(options["by_duration"]))


_TARGETS: Mapping[str, Callable[[Cluster, Options, str, list[Partition]], Offsets]] = {
    "--to-earliest": _to_earliest,
    "--to-latest": _to_latest,
    "--to-current": _to_current,
    "--to-offset": _to_offset,
    "--shift-by": _shift_by,
    "--to-datetime": _to_datetime,
    "--by-duration": _by_duration,
}


def parse_datetime(text: str) -> int:
    """ISO 8601 with or without an offset (none: UTC, as in Kafka) to ms since 1970. Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime must be YYYY-MM-DDTHH:mm:SS.sss, not '{text}'") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """ISO 8601 days, hours, minutes and seconds to ms. Raises UsageError."""
    match = _DURATION.fullmatch(text)
    groups = match.groupdict() if match else {}
    parts = {name: float(part) for name, part in groups.items() if part and name != "sign"}
    if not match or not parts:
        raise click.UsageError(f"--by-duration must be PnDTnHnMnS, not '{text}'")
    ms = round(timedelta(**parts) / timedelta(milliseconds=1))
    return -ms if match["sign"] else ms


def _listed(cluster: Cluster, partitions: Iterable[Partition], timestamp: int) -> Offsets:
    found, failed = cluster.offsets(dict.fromkeys(partitions, timestamp))
    for (topic, index), code in failed.items():
        raise RequestFailed(code, f"{topic}-{index}: {explain(code)}")
    return {one: offset for one, (offset, _) in found.items()}


def _at_time(cluster: Cluster, partitions: list[Partition], timestamp: int) -> Offsets:
    """The first offsets since `timestamp`; the log end where there is no later message."""
    found = _listed(cluster, partitions, timestamp)
    late = [one for one, offset in found.items() if offset < 0]
    for topic, index in late:
        click.echo(f"Warn: {topic}-{index} has no message since then; using the latest offset.", err=True)
    return found | _listed(cluster, late, LATEST)


def _within_range(cluster: Cluster, offsets: Offsets) -> Offsets:
    """Limit each offset to the start and the end of its partition."""
    starts, ends = _listed(cluster, offsets, EARLIEST), _listed(cluster, offsets, LATEST)
    kept = {one: min(max(offset, starts[one]), ends[one]) for one, offset in offsets.items()}
    for (topic, index), offset in offsets.items():
        if kept[topic, index] != offset:
            click.echo(f"WARN: {topic}-{index} has no offset {offset}; using {kept[topic, index]}.", err=True)
    return kept


def _from_file(path: Path, groups: list[str]) -> dict[str, Offsets]:
    """`topic,partition,offset` for a single group, `group,topic,partition,offset` for several."""
    plan: dict[str, Offsets] = {}
    try:
        with path.open(newline="") as file:
            for row in filter(None, csv.reader(file)):
                group, topic, index, offset = row if len(row) == 4 else [groups[0], *row]
                plan.setdefault(group, {})[topic, int(index)] = int(offset)
    except (OSError, ValueError, IndexError) as error:
        raise OdradekError(f"{path}: not a file of [group,]topic,partition,offset lines: {error}") from None
    return plan


def _commit(cluster: Cluster, group: str, offsets: Offsets) -> None:
    """OffsetCommit without a member id, which the coordinator accepts while the group is empty."""
    made = {
        TopicPartition(topic, index): OffsetAndMetadata(offset, "", -1) for (topic, index), offset in offsets.items()
    }
    for place, error in cluster.admin.alter_group_offsets(group, made).items():
        check(error.errno, f"{place.topic}-{place.partition}: {explain(error.errno)}")


def _print(plan: Mapping[str, Offsets], options: Options) -> None:
    lines = {(g, *one): offset for g, offsets in plan.items() for one, offset in sorted(offsets.items())}
    if options["as_json"]:
        names = ("group", "topic", "partition", "offset")
        print_json([dict(zip(names, (*place, offset), strict=True)) for place, offset in lines.items()])
    elif options["export"]:
        single = len(options["group"]) == 1
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([*place[1 if single else 0 :], offset] for place, offset in lines.items())
    else:
        print_new_offsets(lines)
