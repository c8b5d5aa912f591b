"""`odradek get-offsets`: prints offsets of partitions by time, as Kafka's GetOffsetShell."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.filters import PartitionFilter, partition_patterns, partitions_of
from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    flag,
    json_option,
    load_properties,
)

# KIP-734, KIP-405, KIP-1005
_TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5}


@click.command(
    "get-offsets",
    cls=ClientCommand,
    epilog="Example: odradek get-offsets --bootstrap-server localhost:9092 --topic clicks --time -2",
)
@connection_options()
@click.option("--topic", metavar="REGEX", help="Only topics whose whole name matches this regular expression.")
@click.option("--partitions", metavar="N,N,…", help="Only these partitions.")
@click.option(
    "--topic-partitions",
    metavar="PATTERNS",
    help="topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3 (upper bounds exclusive).",
)
@click.option(
    "--time",
    "time",
    default="latest",
    show_default=True,
    metavar="TIME",
    help="Milliseconds since 1970, or -1/latest, -2/earliest, -3/max-timestamp, -4/earliest-local, -5/latest-tiered. "
    "For a timestamp: the offset of the first record with that timestamp or a later one.",
)
@flag("--exclude-internal-topics", "Exclude internal topics such as __consumer_offsets.")
@json_option
def command(**options: Any) -> None:
    """Print topic:partition:offset for each matching partition."""
    from odradek.broker.commands.get_offsets import print_offsets

    partition_filter = _partition_filter(options)
    timestamp = _timestamp(options["time"])
    config = load_properties(options["command_config"])
    code = print_offsets.run(
        options["bootstrap_server"],
        config,
        partition_filter,
        timestamp,
        exclude_internal=options["exclude_internal_topics"],
        as_json=options["as_json"],
    )
    raise SystemExit(code)


def _partition_filter(options: dict[str, Any]) -> PartitionFilter:
    if options["topic_partitions"] is None:
        return partitions_of(options["topic"], options["partitions"])
    if options["topic"] or options["partitions"]:
        raise click.UsageError("--topic-partitions cannot be given with --topic or --partitions")
    return partition_patterns(options["topic_partitions"])


def _timestamp(text: str) -> int:
    try:
        return _TIMES[text] if text in _TIMES else int(text)
    except ValueError:
        raise click.UsageError(f"--time must be a number or one of {', '.join(_TIMES)}, not '{text}'") from None
