"""`odradek producer-perf-test`: sends records and measures throughput and latency, as Kafka's ProducerPerformance."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    end_on_sigterm,
    exactly_one,
    flag,
    load_properties,
)

_TRANSACTION_MS = 3000
_PROPS = "--producer-props"


class PerfCommand(ClientCommand):
    """Accepts `--producer-props a=1 b=2`: all words up to the next option belong to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        inside = False
        for arg in args:
            if arg.startswith("--"):
                inside = arg == _PROPS
                spread += [] if inside else [arg]
            else:
                spread += [_PROPS, arg] if inside else [arg]
        return super().parse_args(ctx, spread)


@click.command(
    "producer-perf-test",
    cls=PerfCommand,
    epilog="Example: odradek producer-perf-test --topic load --num-records 100000 --record-size 200 "
    "--throughput -1 --producer-props bootstrap.servers=localhost:9092 acks=1",
)
@click.option("--topic", required=True, help="The topic to send to.")
@click.option("--num-records", required=True, type=click.IntRange(min=1), help="Number of records to send.")
@click.option(
    "--record-size", type=click.IntRange(min=1), help="Bytes per record; the payload is random capital letters."
)
@click.option("--payload-file", metavar="FILE", help="Send payloads picked at random from this file.")
@flag("--payload-monotonic", "Send the decimal numbers 0, 1, 2, … as payloads.")
@click.option("--payload-delimiter", default="\\n", show_default=True, help="Delimiter of payloads in the file.")
@click.option("--throughput", required=True, type=float, help="Maximum records per second; -1: no limit.")
@click.option(_PROPS, "producer_props", multiple=True, metavar="KEY=VALUE …", help="Producer configurations.")
@connection_options(config_option="--producer.config", required=False)
@flag("--print-metrics", "Print the client's metrics at the end.")
@click.option("--transactional-id", help="Send in transactions with this transactional.id.")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(min=1),
    help=f"Commit a transaction after this time (default {_TRANSACTION_MS}).",
)
def command(**options: Any) -> None:
    """Send records and print the throughput and the latency of acknowledgements.

    Exit code 1 if any record was not sent.
    """
    exactly_one(
        {f"--{name}": options[name.replace("-", "_")] for name in ("record-size", "payload-file", "payload-monotonic")}
    )
    properties = load_properties(options["command_config"], options["producer_props"])
    if options["bootstrap_server"]:
        properties["bootstrap.servers"] = options["bootstrap_server"]
    if "bootstrap.servers" not in properties:
        raise click.UsageError("give --bootstrap-server, or bootstrap.servers in --producer-props")
    _transactions(options, properties)
    from odradek.broker.commands.producer_perf_test import measure_producer

    end_on_sigterm()
    raise SystemExit(measure_producer.run(options, properties))


def _transactions(options: dict[str, Any], properties: dict[str, str]) -> None:
    """Set `transaction_ms`, None without transactions; any of three settings enables them."""
    name = options["transactional_id"] or properties.get("transactional.id")
    options["transaction_ms"] = options["transaction_duration_ms"]
    if name is None and options["transaction_ms"] is None:
        return
    if name is None:
        import uuid

        name = f"performance-producer-{uuid.uuid4()}"
    properties["transactional.id"] = name
    options["transaction_ms"] = options["transaction_ms"] or _TRANSACTION_MS
