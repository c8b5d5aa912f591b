"""`odradek console-producer`: sends each line of standard input as a message, as Kafka's ConsoleProducer."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    connection_options,
    end_on_sigterm,
    flag,
    key_values,
    load_properties,
)
from odradek.broker.commands.console_producer.lines import reader

_LINE_READERS = (
    "line",
    "org.apache.kafka.tools.LineMessageReader",
    "kafka.tools.ConsoleProducer$LineMessageReader",
)
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(
    "console-producer",
    cls=ClientCommand,
    epilog="Example: odradek console-producer --bootstrap-server localhost:9092 --topic clicks "
    "--property parse.key=true --property key.separator=: < clicks.txt",
)
@connection_options(config_option="--producer.config")
@click.option("--topic", required=True, help="The topic to send to.")
@click.option(
    "--property",
    "reader_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="How lines are read: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), "
    "headers.separator (,), headers.key.separator (:), null.marker, ignore.error.",
)
@click.option("--reader-config", metavar="FILE", help="Properties file with the same; --property wins.")
@click.option("--producer-property", multiple=True, metavar="KEY=VALUE", help="A configuration of the producer.")
@click.option(
    "--line-reader",
    default="line",
    show_default=True,
    type=click.Choice(_LINE_READERS),
    help="Kafka's class names are taken for its reader of lines.",
)
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    type=click.Choice(_CODECS),
    help="Compression of batches; gzip when no codec is named. Default: none.",
)
@flag("--sync", "Wait for each message to be acknowledged before the next one is sent.")
@click.option("--request-required-acks", metavar="ACKS", help="0, 1, or all (-1, the default).")
@click.option(
    "--batch-size",
    type=click.IntRange(min=0),
    help="Bytes of a batch (default 262144); the same as --max-partition-memory-bytes, which wins.",
)
@click.option("--max-partition-memory-bytes", type=click.IntRange(min=0), help="Bytes of a batch.")
@click.option(
    "--max-memory-bytes",
    type=click.IntRange(min=1),
    default=32 << 20,
    show_default=True,
    help="Bytes that may wait for acknowledgement before reading stops.",
)
@click.option(
    "--timeout",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Milliseconds that a message waits for others to fill its batch (linger.ms).",
)
@click.option("--message-send-max-retries", type=click.IntRange(min=0), help="Default: until delivery times out.")
@click.option("--retry-backoff-ms", type=click.IntRange(min=0), help="Pause before a retry (default 100).")
@click.option("--request-timeout-ms", type=click.IntRange(min=1), help="Wait for an answer (default 30000).")
@click.option("--metadata-expiry-ms", type=click.IntRange(min=0), help="Age of metadata (default 300000).")
@click.option("--max-block-ms", type=click.IntRange(min=0), help="Wait for metadata (default 60000).")
@click.option("--socket-buffer-size", type=click.IntRange(min=0), help="Send buffer of the socket.")
def command(**options: Any) -> None:
    """Send each line of standard input as a message.

    Lines end at a newline byte; all other bytes, also CR and NUL, are sent unchanged. An empty line is an empty
    message. Messages in a partition keep the order of lines. Exit code 1 when any message was not sent.
    """
    properties = load_properties(options["reader_config"], ()) | key_values(options["reader_properties"])
    how = reader(properties)
    producer_properties = load_properties(options["command_config"], options["producer_property"])
    end_on_sigterm()
    from odradek.broker.commands.console_producer import produce

    raise SystemExit(produce.run(options, producer_properties, how))
