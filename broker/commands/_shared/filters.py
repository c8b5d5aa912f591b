"""Filters for topics by regular expression and for partitions by range, in the syntax of Kafka's tools."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from odradek.protocol.wire import INT32_MAX

TopicFilter = Callable[[str], bool]
PartitionFilter = Callable[[str, int], bool]

_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")


def topic_filter(text: str) -> TopicFilter:
    """A regular expression that must match the whole name; `,` separates alternatives. Raises UsageError."""
    pattern = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return _whole(re.compile(pattern))
    except re.error as error:
        raise click.UsageError(f"'{text}' is not a regular expression: {error}") from None


def _whole(pattern: re.Pattern[str]) -> TopicFilter:
    return lambda name: pattern.fullmatch(name) is not None


def partitions_of(topic: str | None, partitions: str | None) -> PartitionFilter:
    """`--topic REGEX --partitions 0,2`; each is optional. Raises UsageError."""
    allowed = topic_filter(topic) if topic else _any_topic
    numbers = _numbers(partitions) if partitions else None
    return lambda name, index: allowed(name) and (numbers is None or index in numbers)


def _any_topic(_name: str) -> bool:
    return True


def _numbers(text: str) -> set[int]:
    try:
        return {int(part) for part in text.split(",")}
    except ValueError:
        raise click.UsageError(f"--partitions must be numbers separated by commas, not '{text}'") from None


def partition_patterns(text: str) -> PartitionFilter:
    """`t1:1,t2:0-3,t3,t4:5-,t5:-3`: upper bounds are exclusive; one matching rule suffices. Raises UsageError."""
    rules = [_rule(part) for part in text.split(",")]
    return lambda name, index: any(rule(name, index) for rule in rules)


def _rule(text: str) -> PartitionFilter:
    match = _RULE.fullmatch(text)
    if not match:
        raise click.UsageError(f"'{text}' is not a topic:partitions pattern")
    topic, one, low, high = match.groups()
    allowed = topic_filter(topic) if topic else _any_topic
    if one:
        return lambda name, index: allowed(name) and index == int(one)
    lowest, below = int(low or 0), int(high) if high else INT32_MAX + 1
    return lambda name, index: allowed(name) and lowest <= index < below
