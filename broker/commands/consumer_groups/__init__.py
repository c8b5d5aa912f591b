"""`odradek consumer-groups`: lists, describes and deletes groups, resets and deletes offsets, as Kafka's tool."""

from __future__ import annotations

from typing import Any

import click

from odradek.broker.commands._shared.options import (
    ClientCommand,
    at_most_one,
    connection_options,
    exactly_one,
    flag,
    json_option,
    load_properties,
    only_with,
)

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
TYPES = ("Classic", "Consumer")
_ANY = ""  # --state and --type without a value

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_TARGETS = (
    "to-earliest",
    "to-latest",
    "to-current",
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "from-file",
)
_RESET = ("--reset-offsets",)
_BELONGS = {
    "--state": ("--list", "--describe"),
    "--type": ("--list",),
    "--members": ("--describe",),
    "--offsets": ("--describe",),
    "--verbose": ("--describe",),
    "--lag-seconds": ("--describe",),
    "--group": ("--describe", "--delete", "--reset-offsets", "--delete-offsets"),
    "--all-groups": ("--describe", "--delete", "--reset-offsets"),
    "--topic": ("--reset-offsets", "--delete-offsets"),
    **{f"--{name}": _RESET for name in ("all-topics", "dry-run", "execute", "export", *_TARGETS)},
}


@click.command(
    "consumer-groups",
    cls=ClientCommand,
    epilog="Example: odradek consumer-groups --bootstrap-server localhost:9092 --group readers "
    "--topic clicks --reset-offsets --to-earliest --execute",
)
@connection_options()
@flag("--list", "Print the names of all groups.")
@flag("--describe", "Print offsets and lag of groups, or with --members or --state their members or state.")
@flag("--delete", "Delete groups that have no members.")
@flag("--reset-offsets", "Reset offsets of groups without members; without --execute, only print them.")
@flag("--delete-offsets", "Delete a group's offsets of topics.")
@click.option("--group", multiple=True, help="A group; may be repeated.")
@flag("--all-groups", "All groups.")
@click.option(
    "--topic", multiple=True, metavar="TOPIC[:N,N]", help="A topic, or some of its partitions; may be repeated."
)
@flag("--all-topics", "All topics for which the group has offsets.")
@flag("--offsets", "With --describe: offsets and lag (the default).")
@flag("--lag-seconds", "With --offsets: also the age of the next record to read, in a last column; Kafka has none.")
@flag("--members", "With --describe: the members of the group.")
@flag("--verbose", "With --members: also the partitions of each member.")
@click.option(
    "--state",
    is_flag=False,
    flag_value=_ANY,
    metavar="[STATE,…]",
    help="With --describe: the state of the group; with --list: also states, or only groups in the given states.",
)
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value=_ANY,
    metavar="[TYPE,…]",
    help="With --list: also types (classic, consumer), or only groups of the given types.",
)
@flag("--dry-run", "Only print the new offsets.")
@flag("--execute", "Set the new offsets.")
@flag("--export", "Print the new offsets as CSV, for --from-file.")
@flag("--to-earliest", "To the earliest offset of each partition.")
@flag("--to-latest", "To the latest offset of each partition.")
@flag("--to-current", "To the committed offset of the group, or to the latest offset if there is none.")
@click.option("--to-offset", type=int, help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="By this number of offsets; backwards if negative.")
@click.option(
    "--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss", help="To the first message with this timestamp or a later one."
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To the first message that is at most this old.")
@click.option("--from-file", metavar="FILE", help="To the offsets of a CSV file: [group,]topic,partition,offset.")
@click.option("--timeout", "timeout_ms", type=click.IntRange(min=1), default=30_000, help="Milliseconds to wait.")
@json_option
def command(**options: Any) -> None:
    """List, describe and delete consumer groups; reset or delete their offsets."""
    action = _checked(options)
    from odradek.broker.commands._shared.client import Cluster
    from odradek.broker.commands.consumer_groups import delete_groups, describe_groups, reset_offsets

    actions = {
        "--list": describe_groups.show_names,
        "--describe": describe_groups.describe,
        "--delete": delete_groups.delete,
        "--delete-offsets": delete_groups.delete_offsets,
        "--reset-offsets": reset_offsets.reset,
    }
    config = load_properties(options["command_config"])
    with Cluster(options["bootstrap_server"], config, options["timeout_ms"]) as cluster:
        raise SystemExit(actions[action](cluster, options))


def _option(options: dict[str, Any], name: str) -> Any:
    """The value of `--some-option`; an empty one, for `--state` without a value, counts as given."""
    value = options["types" if name == "--type" else name[2:].replace("-", "_")]
    return True if value == _ANY else value


def _checked(options: dict[str, Any]) -> str:
    """Check the options against each other; returns the action."""
    action = exactly_one({f"--{name}": options[name.replace("-", "_")] for name in _ACTIONS})
    only_with(action, _BELONGS, {name: _option(options, name) for name in _BELONGS})
    at_most_one({"--group": options["group"], "--all-groups": options["all_groups"]})
    if action != "--list" and not options["group"] and not options["all_groups"]:
        raise click.UsageError(f"{action} needs --group or --all-groups")
    if action == "--describe":
        at_most_one({f"--{name}": _option(options, f"--{name}") for name in ("members", "offsets", "state")})
        _check_lag_seconds(options)
        if options["state"]:
            raise click.UsageError("--state takes no value with --describe")
    if action == "--delete-offsets" and (len(options["group"]) != 1 or not options["topic"]):
        raise click.UsageError("--delete-offsets needs one --group and at least one --topic")
    if action == "--reset-offsets":
        _check_reset(options)
    options["states"] = _words(options["state"], STATES, "--state")
    options["type_names"] = _words(options["types"], TYPES, "--type")
    return action


def _check_lag_seconds(options: dict[str, Any]) -> None:
    for name in ("--members", "--state"):
        if options["lag_seconds"] and _option(options, name):
            raise click.UsageError(f"--lag-seconds cannot be given with {name}")


def _check_reset(options: dict[str, Any]) -> None:
    at_most_one({"--dry-run": options["dry_run"], "--execute": options["execute"]})
    at_most_one({"--topic": options["topic"], "--all-topics": options["all_topics"]})
    values = {f"--{name}": options[name.replace("-", "_")] for name in _TARGETS}
    target = at_most_one(values)
    if target is None:
        raise click.UsageError(f"--reset-offsets needs one of {', '.join(values)}")
    if not (options["topic"] or options["all_topics"] or target == "--from-file"):
        raise click.UsageError("--reset-offsets needs --topic or --all-topics")
    options["target"] = target


def _words(text: str | None, known: tuple[str, ...], option: str) -> list[str]:
    """Comma-separated words in any case, with the spelling of `known`. Raises UsageError."""
    by_lower = {word.lower(): word for word in known}
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word not in by_lower:
            raise click.UsageError(f"{option}: '{word}' is not one of {', '.join(known)}")
    return [by_lower[word] for word in words]
