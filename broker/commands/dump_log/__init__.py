"""`odradek dump-log`: prints segment files as text, as Kafka's DumpLogSegments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from odradek.broker.errors import FAILED
from odradek.protocol.wire import INT32_MAX

_KAFKA_DECODERS = ("org.apache.kafka.tools.api.StringDecoder", "kafka.serializer.StringDecoder")
_MISSING = "is not supported: records are printed as UTF-8, and Java classes cannot be loaded"


def _decoder_class(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and value not in _KAFKA_DECODERS:
        raise click.BadParameter(f"{value} {_MISSING}")
    return value


@click.command(
    "dump-log",
    no_args_is_help=True,
    epilog="Example: odradek dump-log --print-data-log --files data/clicks-0/00000000000000000000.log",
)
@click.option("--files", required=True, metavar="F,F,…", help="The .log, .index, .timeindex, … files, comma-separated.")
@click.option("--print-data-log", is_flag=True, help="Print the records' contents; implied by any decoder.")
@click.option("--deep-iteration", is_flag=True, help="Print the records of each batch; implied by --print-data-log.")
@click.option("--index-sanity-check", is_flag=True, help="Only check the indexes as a broker does at startup.")
@click.option("--verify-index-only", is_flag=True, help="Verify indexes without printing their entries.")
@click.option(
    "--max-message-size", type=int, default=5 << 20, show_default=True, help="Size of the largest message in bytes."
)
@click.option("--max-bytes", type=int, default=INT32_MAX, help="Maximum bytes to read from each .log file.")
@click.option("--skip-record-metadata", is_flag=True, help="Do not print offsets, timestamps and sizes of records.")
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state.")
@click.option(
    "--key-decoder-class", callback=_decoder_class, help="Only Kafka's StringDecoder, the default, is supported."
)
@click.option(
    "--value-decoder-class", callback=_decoder_class, help="Only Kafka's StringDecoder, the default, is supported."
)
def command(**arguments: Any) -> None:
    """Print the contents of log segments, indexes, producer snapshots and transaction indexes.

    Exit code 1 when the files are inconsistent; the faults go to standard error.
    """
    from odradek.storage.tools import dump

    problems = dump.Problems()
    options = _options(arguments)
    for name in arguments["files"].split(","):
        _dump(Path(name.strip()), options, problems)
    for line in problems.lines():
        click.echo(line, err=True)
    raise SystemExit(FAILED if problems.found else 0)


def _dump(path: Path, options: Any, problems: Any) -> None:
    from odradek.storage.tools import dump

    try:
        for line in dump.dump(path, options, problems):
            click.echo(line)
    except OSError as error:
        problems.add(f"Cannot read {error.filename or path}", f"  {error.strerror}")


def _options(arguments: dict[str, Any]) -> Any:
    from odradek.storage.tools import dump

    decoder, chosen = _decoder(arguments)
    return dump.Options(
        print_data_log=arguments["print_data_log"] or chosen,
        deep_iteration=arguments["deep_iteration"],
        index_sanity_check=arguments["index_sanity_check"],
        verify_index_only=arguments["verify_index_only"],
        max_message_size=arguments["max_message_size"],
        max_bytes=arguments["max_bytes"],
        skip_record_metadata=arguments["skip_record_metadata"],
        decoder=decoder,
    )


def _decoder(arguments: dict[str, Any]) -> tuple[Any, bool]:
    from odradek.broker.commands.dump_log import decoders
    from odradek.storage.tools.dump_records import text_decoder

    if arguments["offsets_decoder"]:
        return decoders.offsets, True
    if arguments["transaction_log_decoder"]:
        return decoders.transactions, True
    return text_decoder, bool(arguments["key_decoder_class"] or arguments["value_decoder_class"])
