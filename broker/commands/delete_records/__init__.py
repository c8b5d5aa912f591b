"""`odradek delete-records`: deletes the oldest records of partitions, as Kafka's DeleteRecordsCommand."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import ClientCommand, connection_options, load_properties


@click.command(
    "delete-records",
    cls=ClientCommand,
    epilog="Example: odradek delete-records --bootstrap-server localhost:9092 --offset-json-file offsets.json",
)
@connection_options(broker_list=False)
@click.option(
    "--offset-json-file",
    required=True,
    metavar="FILE",
    help="The first offset to keep in each partition; -1 deletes all records up to the high watermark: "
    '{"partitions": [{"topic": "clicks", "partition": 0, "offset": 10}], "version": 1}',
)
def command(**options: Any) -> None:
    """Delete all records before an offset, for each partition of a JSON file."""
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.delete_records import records_deletion

    offsets = records_deletion.read_offsets(options["offset_json_file"])
    with Cluster(options["bootstrap_server"], load_properties(options["command_config"])) as cluster:
        records_deletion.delete(cluster, offsets)
