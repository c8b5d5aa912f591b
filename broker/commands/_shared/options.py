"""Shared by all client commands: the click command class, connection options, rules between options.

The `__init__.py` of a command's package (`topics/`) declares options and checks them; the other modules in the package
import kafka-python and do the work, so that `odradek --help` does not import kafka-python.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 and 143 ended by a signal.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import click

from odradek.broker.errors import OdradekError
from odradek.protocol import properties

Decorator = Callable[[Any], Any]


class ClientCommand(click.Command):
    """A command that connects to a broker: prints its usage without arguments, and client errors in one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("no_args_is_help", True)
        super().__init__(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        _log_to_stderr()
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            reader_left()
        except _client_errors() as error:
            raise OdradekError(f"{self.name}: {error}") from error


def _log_to_stderr() -> None:
    """Log errors of the client's threads, each text once in 5 s, so that a lost broker does not flood the terminal."""
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger().handlers[0].addFilter(_in_one_line)
    logging.getLogger().handlers[0].addFilter(_once_in_a_while({}))
    for chatty in ("kafka.net.connection", "kafka.cluster"):  # duplicates of kafka.net.manager; missing topics
        logging.getLogger(chatty).setLevel(logging.CRITICAL)


def _in_one_line(record: logging.LogRecord) -> bool:
    """An exception of the client's as a text without its traceback."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args, record.exc_info = f"{record.getMessage()}: {record.exc_info[1]}", (), None
    return True


def _once_in_a_while(last: dict[str, float]) -> Callable[[logging.LogRecord], bool]:
    def new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.created - last.get(text, 0) < 5:
            return False
        last[text] = record.created
        return True

    return new


def _client_errors() -> tuple[type[Exception], ...]:
    """The exceptions of kafka-python; none when it was not imported."""
    errors = sys.modules.get("kafka.errors")
    return (errors.KafkaError,) if errors else ()


def reader_left() -> None:
    """Discard further output after the reader of the pipe has closed it (`… | head`); that is not a failure."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def end_on_sigterm() -> None:
    """Make SIGTERM unwind the stack as Ctrl-C does, so that clients are flushed and closed."""
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def connection_options(
    *, config_option: str = "--command-config", required: bool = True, broker_list: bool = True
) -> Decorator:
    """`--bootstrap-server` and the properties file of the client.

    `broker_list`: `--broker-list` is an alias of `--bootstrap-server`, not a list of broker ids.
    """

    def decorate(function: Any) -> Any:
        function = click.option(
            config_option,
            "command_config",
            metavar="FILE",
            help="Properties file with client configurations.",
        )(function)
        return click.option(
            "--bootstrap-server",
            *(["--broker-list"] if broker_list else []),
            "bootstrap_server",
            required=required,
            metavar="HOST:PORT,…",
            help="The brokers to connect to first.",
        )(function)

    return decorate


def json_option(function: Any) -> Any:
    """`--json`: the table as one JSON document."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def flag(name: str, text: str) -> Decorator:
    """An option without a value."""
    return click.option(name, is_flag=True, help=text)


def load_properties(path: str | None, pairs: tuple[str, ...] | list[str] = ()) -> dict[str, str]:
    """The properties of a file, overridden by `key=value` pairs. Raises UsageError."""
    found: dict[str, str] = {}
    if path:
        try:
            found = properties.load(click.Path(exists=True, path_type=_path()).convert(path, None, None))
        except (OSError, properties.PropertiesError) as error:
            raise click.UsageError(f"cannot read {path}: {error}") from None
    return found | key_values(pairs)


def _path() -> Any:
    from pathlib import Path

    return Path


def key_values(pairs: tuple[str, ...] | list[str]) -> dict[str, str]:
    """`key=value` arguments as a dictionary; a value may be empty and may contain `=`. Raises UsageError."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"'{pair}' is not of the form key=value")
        found[key.strip()] = value
    return found


def exactly_one(options: Mapping[str, Any]) -> str:
    """The one action of `options` that is set. Raises UsageError when none or several are."""
    actions = [name for name, value in options.items() if value]
    if len(actions) != 1:
        raise click.UsageError(f"give exactly one action of {', '.join(options)}")
    return actions[0]


def _is_set(value: Any) -> bool:
    """Whether an option was on the command line; 0 counts as given."""
    return value is not None and value is not False and value != ()


def at_most_one(options: Mapping[str, Any]) -> str | None:
    """The only one of `options` that is set, or None. Raises UsageError when several are."""
    present = [name for name, value in options.items() if _is_set(value)]
    if len(present) > 1:
        raise click.UsageError(f"{' and '.join(present)} cannot be given together")
    return present[0] if present else None


def only_with(action: str, allowed: Mapping[str, tuple[str, ...]], options: Mapping[str, Any]) -> None:
    """Refuse options that do not belong to `action`; `allowed` has the actions of each option."""
    for option, actions in allowed.items():
        if _is_set(options[option]) and action not in actions:
            raise click.UsageError(f"{option} cannot be given with {action} (only with {', '.join(actions)})")
