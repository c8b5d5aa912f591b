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
@click.option(
    "--reader-config", metavar="FILE", help="Properties file with these properties; --property takes precedence."
)
@click.option("--producer-property", multiple=True, metavar="KEY=VALUE", help="A producer configuration.")
@click.option(
    "--line-reader",
    default="line",
    show_default=True,
    type=click.Choice(_LINE_READERS),
    help="line, or Kafka's class name of its line reader.",
)
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    type=click.Choice(_CODECS),
    help="Compression of batches; gzip if the option has no value. Default: none.",
)
@flag("--sync", "Wait for the acknowledgement of each message before sending the next.")
@click.option("--request-required-acks", metavar="ACKS", help="0, 1, or all (-1, the default).")
@click.option(
    "--batch-size",
    type=click.IntRange(min=0),
    help="Batch size in bytes (default 262144); --max-partition-memory-bytes takes precedence.",
)
@click.option("--max-partition-memory-bytes", type=click.IntRange(min=0), help="Batch size in bytes, as --batch-size.")
@click.option(
    "--max-memory-bytes",
    type=click.IntRange(min=1),
    default=32 << 20,
    show_default=True,
    help="Bytes of unacknowledged messages at which the producer stops reading input.",
)
@click.option(
    "--timeout",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Milliseconds that a message waits for others to fill its batch (linger.ms).",
)
@click.option(
    "--message-send-max-retries",
    type=click.IntRange(min=0),
    help="Number of retries (default: until the delivery timeout).",
)
@click.option("--retry-backoff-ms", type=click.IntRange(min=0), help="Milliseconds before a retry (default 100).")
@click.option(
    "--request-timeout-ms", type=click.IntRange(min=1), help="Milliseconds to wait for a response (default 30000)."
)
@click.option(
    "--metadata-expiry-ms", type=click.IntRange(min=0), help="Maximum age of metadata in milliseconds (default 300000)."
)
@click.option("--max-block-ms", type=click.IntRange(min=0), help="Milliseconds to wait for metadata (default 60000).")
@click.option("--socket-buffer-size", type=click.IntRange(min=0), help="Send buffer of the socket in bytes.")
def command(**options: Any) -> None:
    """Send each line of standard input as a message.

    Lines end at a newline byte; all other bytes, including CR and NUL, are sent unchanged. An empty line is an empty
    message. Messages in a partition keep the order of lines. Exit code 1 if any message was not sent.
    """
    properties = load_properties(options["reader_config"], ()) | key_values(options["reader_properties"])
    how = reader(properties)
    producer_properties = load_properties(options["command_config"], options["producer_property"])
    end_on_sigterm()
    from odradek.broker.commands.console_producer import produce

    raise SystemExit(produce.run(options, producer_properties, how))
