"""Implements `odradek adopt --dry-run`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from odradek.broker import config as configuration
from odradek.broker.commands._shared.tables import print_json, rows
from odradek.broker.controller import adoption_plan
from odradek.broker.controller.adoption_plan import AdoptionPlan, TopicAdoption
from odradek.broker.errors import OdradekError
from odradek.cluster.tree.embedded import FILE_NAME
from odradek.cluster.tree.znodes import uuid_text
from odradek.storage.dirs import logdirs
from odradek.storage.dirs.logdirs import LogDirError
from odradek.storage.files import checkpoints
from odradek.storage.files.checkpoints import CheckpointError

_HEADER = ("TOPIC", "PARTITIONS", "HERE", "BYTES", "TOPIC ID", "CONFIGS")
_WIDTHS = (5, 10, 4, 5, 22, 0)


def dry_run(log_dirs: Sequence[str], properties: Path | None, *, as_json: bool) -> None:
    """Print what a first start would adopt from the directories `log_dirs`, or else from log.dirs in `properties`.

    Raises OdradekError where a start would fail.
    """
    config = configuration.load(properties)
    directories = log_dirs or config.log_dirs
    try:
        logdirs.refuse_doubles(place for folder in directories for place in logdirs.partitions_in(folder))
        broker, cluster = _identity(directories)
        plan = adoption_plan.plan(directories, broker, config)
    except (LogDirError, CheckpointError, OSError) as error:
        raise OdradekError(str(error)) from None
    if Path(directories[0], FILE_NAME).exists():
        plan.notes.insert(
            0,
            f"{directories[0]} has {FILE_NAME}: the broker already took these directories over; a start takes over "
            "nothing more",
        )
    document = {"broker": broker, "cluster": cluster, **_document(plan)}
    if as_json:
        print_json(document)
    else:
        click.echo("\n".join(_lines(document)))


def _identity(directories: Sequence[str]) -> tuple[int, str | None]:
    """Broker and cluster id that a start without broker.id finds."""
    found = [meta for meta in map(checkpoints.read_meta_properties, directories) if meta]
    nodes = [meta.node_id for meta in found if meta.node_id is not None]
    clusters = [meta.cluster_id for meta in found if meta.cluster_id]
    return nodes[0] if nodes else 0, clusters[0] if clusters else None


def _document(plan: AdoptionPlan) -> dict[str, Any]:
    return {
        "topics": [_topic(topic) for topic in plan.topics],
        "dynamicBrokerConfigs": {"" if key is None else str(key): found for key, found in plan.broker_configs.items()},
        "strays": [{"path": str(path), "reason": reason} for path, reason in plan.strays.values()],
        "notes": [*plan.warnings, *plan.notes],
    }


def _topic(topic: TopicAdoption) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topicId": uuid_text(topic.id) if topic.id else None,
        "partitions": topic.partitions,
        "found": {str(index): str(one.path) for index, one in topic.found.items()},
        "bytes": sum(_size(one.path) for one in topic.found.values()),
        "configs": topic.configs,
        "unknown": topic.unknown or None,
        "notes": topic.notes,
    }


def _size(directory: Path) -> int:
    """Bytes of the log, without its indexes."""
    with os.scandir(directory) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".log"))


def _lines(document: Mapping[str, Any]) -> list[str]:
    topics = document["topics"]
    lines = [f"broker.id {document['broker']}, cluster {document['cluster'] or 'not recorded'}"]
    if topics:
        lines += ["", *(line.rstrip() for line in rows(_HEADER, _WIDTHS, map(_row, topics)))]
    lines += _part("dynamic broker configs", _broker_lines(document["dynamicBrokerConfigs"]))
    lines += _part(
        "UNKNOWN RETENTION: these topics will be neither deleted from nor compacted",
        [f"{topic['topic']}: {topic['unknown']}" for topic in topics if topic["unknown"]],
    )
    lines += _part("notes on topics", [f"{topic['topic']}: {note}" for topic in topics for note in topic["notes"]])
    lines += _part("renamed to -stray and kept", [f"{one['path']}: {one['reason']}" for one in document["strays"]])
    return [*lines, *_part("notes", document["notes"]), "", "Nothing was changed."]


def _part(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {line}" for line in lines)] if lines else []


def _broker_lines(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    return [f"{f'broker {key}' if key else 'all brokers'}: {_pairs(configs)}" for key, configs in found.items()]


def _row(topic: Mapping[str, Any]) -> tuple[Any, ...]:
    here, configs = len(topic["found"]), _pairs(topic["configs"]) or "the broker's defaults"
    return topic["topic"], topic["partitions"], here, f"{topic['bytes']:,}", topic["topicId"], configs


def _pairs(configs: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(configs.items()))
