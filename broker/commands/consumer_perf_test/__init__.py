"""`odradek consumer-perf-test`: measures how fast messages can be read, as Kafka's ConsumerPerformance."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    end_on_sigterm,
    flag,
    load_properties,
)


@click.command(
    "consumer-perf-test",
    cls=ClientCommand,
    epilog="Example: odradek consumer-perf-test --bootstrap-server localhost:9092 --topic load --messages 100000",
)
@connection_options(config_option="--consumer.config")
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--messages", required=True, type=click.IntRange(min=1), help="Number of messages to read.")
@click.option("--group", help="The consumer group (default: perf-consumer- and a random number).")
@click.option("--fetch-size", type=click.IntRange(min=1), default=1 << 20, show_default=True, help="Bytes per fetch.")
@click.option(
    "--socket-buffer-size",
    type=click.IntRange(min=1),
    default=2 << 20,
    show_default=True,
    help="Receive buffer of the socket in bytes.",
)
@flag("--from-latest", "Without a committed offset, start at the latest message, not the earliest.")
@click.option(
    "--timeout",
    is_flag=False,
    flag_value=10_000,
    default=10_000,
    type=int,
    show_default=True,
    help="Exit when no message arrives for this many milliseconds.",
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    help="Milliseconds between the lines of --show-detailed-stats.",
)
@flag("--show-detailed-stats", "Print a line per reporting interval instead of one at the end.")
@click.option(
    "--date-format",
    default="yyyy-MM-dd HH:mm:ss:SSS",
    show_default=True,
    help="Format of times, as a pattern of Java's SimpleDateFormat.",
)
@flag("--hide-header", "Do not print the header line.")
@flag("--print-metrics", "Print the client's metrics at the end.")
@click.option("--threads", hidden=True, help="Accepted and ignored, as by Kafka.")
@click.option("--num-fetch-threads", hidden=True, help="Accepted and ignored, as by Kafka.")
def command(**options: Any) -> None:
    """Read messages and print the throughput."""
    properties = load_properties(options["command_config"])
    from odradek.broker.commands.consumer_perf_test import measure_consumer

    end_on_sigterm()
    raise SystemExit(measure_consumer.run(options, properties))
