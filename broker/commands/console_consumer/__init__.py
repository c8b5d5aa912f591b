"""`odradek console-consumer`: prints messages to standard output, as Kafka's ConsoleConsumer.

With `--zookeeper`, as in 0.8, it finds the brokers in ZooKeeper; groups and their offsets are still on the brokers.
"""

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
from odradek.broker.commands._shared.properties import offset_reset
from odradek.broker.commands._shared.zookeeper import find_brokers, zookeeper_option

EARLIEST, LATEST = -2, -1
_FORMATTERS = {
    "default": "default",
    "json": "json",
    "noop": "noop",
    "org.apache.kafka.tools.consumer.DefaultMessageFormatter": "default",
    "kafka.tools.DefaultMessageFormatter": "default",
    "org.apache.kafka.tools.consumer.NoOpMessageFormatter": "noop",
    "kafka.tools.NoOpMessageFormatter": "noop",
}


@click.command(
    "console-consumer",
    cls=ClientCommand,
    epilog="Example: odradek console-consumer --bootstrap-server localhost:9092 --topic clicks "
    "--from-beginning --property print.key=true",
)
@connection_options(config_option="--consumer.config", required=False)
@zookeeper_option
@click.option("--topic", help="The topic to read.")
@click.option("--include", "--whitelist", "include", metavar="REGEX", help="Read all topics whose whole name matches.")
@flag("--from-beginning", "Start at the earliest message if the group has no committed offset.")
@click.option("--max-messages", type=click.IntRange(min=-1), default=-1, help="Exit after this many messages.")
@click.option("--timeout-ms", type=int, default=-1, help="Exit when no message arrives for this long.")
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition only.")
@click.option("--offset", metavar="OFFSET", help="With --partition: a number, earliest, or latest (default).")
@click.option("--group", help="The consumer group; without it, the consumer joins no group and commits no offsets.")
@click.option(
    "--property",
    "formatter_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="How messages are printed: print.timestamp, .partition, .offset, .epoch, .headers, .key, .value (true or "
    "false), key.separator (tab), line.separator (newline), headers.separator (,), null.literal, "
    "key.deserializer, value.deserializer, headers.deserializer (string, long, integer, short, double, float, "
    "uuid, bytes; Kafka's class names are accepted too).",
)
@click.option(
    "--formatter-config", metavar="FILE", help="Properties file with these properties; --property takes precedence."
)
@click.option(
    "--formatter",
    default="default",
    show_default=True,
    type=click.Choice(list(_FORMATTERS)),
    metavar="NAME",
    help="default, json (one object per line), or noop; Kafka's class names are accepted too.",
)
@click.option("--key-deserializer", metavar="CLASS", help="As --property key.deserializer=….")
@click.option("--value-deserializer", metavar="CLASS", help="As --property value.deserializer=….")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Whether to read messages of open and aborted transactions (read_uncommitted, the default) or not.",
)
@click.option("--consumer-property", multiple=True, metavar="KEY=VALUE", help="A consumer configuration.")
@flag("--skip-message-on-error", "Skip a message that cannot be printed.")
@flag("--enable-systest-events", "Print shutdown_complete at the end.")
def command(**options: Any) -> None:
    """Print messages, each followed by a newline, byte for byte as they were sent.

    Prints the number of messages to standard error at the end, also after Ctrl-C.
    """
    formatting = load_properties(options["formatter_config"]) | key_values(options["formatter_properties"])
    for part in ("key", "value"):
        if options[f"{part}_deserializer"]:
            formatting.setdefault(f"{part}.deserializer", options[f"{part}_deserializer"])
    properties = load_properties(options["command_config"], options["consumer_property"])
    _check(options, properties)
    find_brokers(options)
    from odradek.broker.commands.console_consumer import consume
    from odradek.broker.commands.console_consumer.formatters import formatter

    end_on_sigterm()
    raise SystemExit(consume.run(options, properties, formatter(_FORMATTERS[options["formatter"]], formatting)))


def _check(options: dict[str, Any], properties: dict[str, str]) -> None:
    """Check the options against each other, and resolve `start` and `group`."""
    if bool(options["topic"]) == bool(options["include"]):
        raise click.UsageError("give exactly one of --topic and --include")
    if options["partition"] is None and options["offset"] is not None:
        raise click.UsageError("--offset needs --partition")
    if options["partition"] is not None and not options["topic"]:
        raise click.UsageError("--partition needs --topic")
    if options["offset"] is not None and options["from_beginning"]:
        raise click.UsageError("--from-beginning and --offset cannot be given together")
    options["group"] = _group(options, properties)
    reset = properties.setdefault("auto.offset.reset", "earliest" if options["from_beginning"] else "latest")
    if options["from_beginning"] and offset_reset(reset) != "earliest":
        raise click.UsageError(f"--from-beginning contradicts auto.offset.reset={reset}")
    options["start"] = _start(options)


def _group(options: dict[str, Any], properties: dict[str, str]) -> str | None:
    groups = {name for name in (options["group"], properties.pop("group.id", None)) if name}
    if len(groups) > 1:
        raise click.UsageError(f"--group and the consumer's properties name different groups: {groups}")
    if groups and options["partition"] is not None:
        raise click.UsageError("--group and --partition cannot be given together")
    return next(iter(groups), None)


def _start(options: dict[str, Any]) -> int:
    """Where to start in `--partition`: an offset, EARLIEST or LATEST."""
    text = options["offset"]
    if text is None:
        return EARLIEST if options["from_beginning"] else LATEST
    names = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in names:
        return names[text.lower()]
    if not text.isdecimal():
        raise click.UsageError(f"--offset must be a number, earliest or latest, not '{text}'")
    return int(text)
