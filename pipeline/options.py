"""What the options of reading and of writing share: their names, and the settings of Kafka's clients among them.

Names are case-insensitive. Unknown options of others pass, as in Spark; an unknown `odradek.` option is an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.pipeline.errors import OptionError

KAFKA, OURS = "kafka.", "odradek."
BYTES_STAY = "keys and values are read and written as bytes; cast the columns instead"


def lowered(options: Mapping[str, str], ours: tuple[str, ...]) -> dict[str, str]:
    """The options with their names in lower case; OptionError for one of ours that is not in `ours`."""
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given):
        if name.startswith(OURS) and name not in ours:
            raise OptionError(f"unknown option {name}; the options are {', '.join(ours)}")
    return given


def bare(options: Mapping[str, str]) -> dict[str, str]:
    """The settings of Kafka's clients among options, without their prefix."""
    return {name[len(KAFKA) :]: value for name, value in options.items() if name.lower().startswith(KAFKA)}


def kafka_settings(options: Mapping[str, str], refused: Mapping[str, str]) -> dict[str, str]:
    """The same, with a server to connect to first; OptionError for one that is in `refused`, which says why."""
    kafka = bare(options)
    for name in kafka:
        if name.lower() in refused:
            raise OptionError(f"the option kafka.{name} is not supported: {refused[name.lower()]}")
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError("the option kafka.bootstrap.servers must be given")
    return kafka


def named(given: Mapping[str, str], name: str) -> str | None:
    """The option `name`, None where it is not given; OptionError where it is empty."""
    if (text := given.get(name)) is not None and not text.strip():
        raise OptionError(f"{name} is empty")
    return text.strip() if text is not None else None
