"""`odradek replica-verification`: compares the replicas of partitions, as Kafka's ReplicaVerificationTool."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.filters import topic_filter
from odradek.broker.commands._shared.options import ClientCommand, connection_options, end_on_sigterm, load_properties


@click.command(
    "replica-verification",
    cls=ClientCommand,
    epilog="Example: odradek replica-verification --broker-list localhost:9092 --topics-include 'clicks.*'",
)
@connection_options()
@click.option(
    "--topics-include", "--topic-white-list", "topics", default=".*", show_default=True, metavar="REGEX",
    help="The topics whose replicas are compared.",
)  # fmt: skip
@click.option(
    "--time", type=int, default=-1, show_default=True,
    help="Where to start: milliseconds since 1970, -1 (latest) or -2 (earliest).",
)  # fmt: skip
@click.option(
    "--fetch-size",
    type=click.IntRange(min=1),
    default=1 << 20,
    show_default=True,
    help="Bytes per partition in a fetch.",
)
@click.option(
    "--max-wait-ms",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Milliseconds that a fetch waits for new records.",
)
@click.option(
    "--report-interval-ms",
    type=click.IntRange(min=0),
    default=30_000,
    show_default=True,
    help="Milliseconds between reports.",
)
def command(**options: Any) -> None:
    """Read partitions from all their replicas and compare the checksums, up to the high watermark, until Ctrl-C.

    Prints differences, and periodically the lag of the comparison. Exit code 1 if replicas have different offsets.
    """
    selected = topic_filter(options["topics"])
    end_on_sigterm()
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.replica_verification import compare

    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        compare.run(cluster, selected, options)
