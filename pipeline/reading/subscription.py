"""Select partitions: by topic names, by a pattern, or one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from odradek.pipeline.errors import OptionError, UnknownTopic
from odradek.pipeline.types import Partition

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The broker's own topics. No pattern matches them; naming one selects it (Spark's source would find nothing)."""


@dataclass(frozen=True)
class Subscription:
    """The selected topics or partitions; exactly one of the three fields is not empty."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[Partition, ...] = ()

    def partitions(self, topics: Mapping[str, int]) -> list[Partition]:
        """The selected partitions that exist; `topics` maps each topic to its number of partitions."""
        if self.assigned:
            return [(topic, index) for topic, index in self.assigned if index < topics.get(topic, 0)]
        return [(topic, index) for topic in self.names(topics) for index in range(topics.get(topic, 0))]

    def existing(self, topics: Mapping[str, int]) -> list[Partition]:
        """The selected partitions; UnknownTopic where some that were named do not exist."""
        if missing := self.missing(topics):
            raise UnknownTopic(f"{', '.join(missing)} does not exist (or this user may not see it)")
        return self.partitions(topics)

    def names(self, topics: Mapping[str, int]) -> list[str]:
        """The selected topics, sorted; with a pattern those that exist (as in Spark it may match a part of a name)."""
        if self.pattern:
            search = re.compile(self.pattern).search
            return sorted(name for name in topics if name not in INTERNAL and search(name))
        return sorted(set(self.topics) | {topic for topic, _ in self.assigned})

    def missing(self, topics: Mapping[str, int]) -> list[str]:
        """Topics, and partitions as `topic-3`, that are selected by name and do not exist; [] with a pattern."""
        absent = [name for name in self.names(topics) if name not in topics]
        few = [f"{topic}-{index}" for topic, index in self.assigned if topic in topics and index >= topics[topic]]
        return absent + few


def parse(options: Mapping[str, str]) -> Subscription:
    """Parse `subscribe`, `subscribepattern` or `assign` (keys in lower case); exactly one must be given."""
    given = [name for name in _PARSERS if name in options]
    if len(given) != 1:
        found = f"not {' and '.join(given)}" if given else "none is given"
        raise OptionError(f"one of the options subscribe, subscribePattern and assign must be given: {found}")
    return _PARSERS[given[0]](options[given[0]])


def _subscribe(text: str) -> Subscription:
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not names:
        raise OptionError(f"subscribe must be topic names, separated by commas; there is none in '{text}'")
    return Subscription(topics=names)


def _pattern(text: str) -> Subscription:
    pattern = text.strip()
    if not pattern:
        raise OptionError("subscribePattern is empty")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"subscribePattern is not a regular expression: {error}: '{pattern}'") from None
    return Subscription(pattern=pattern)


def _assign(text: str) -> Subscription:
    try:
        found = [(topic, index) for topic, indexes in json.loads(text).items() for index in indexes]
    except (ValueError, AttributeError, TypeError):
        found = []
    if not found or not all(type(index) is int and index >= 0 for _, index in found):
        raise OptionError(f'assign must be partitions such as {{"topicA":[0,1],"topicB":[2]}}, not \'{text}\'')
    return Subscription(assigned=tuple(dict.fromkeys(sorted(found))))


_PARSERS = {"subscribe": _subscribe, "subscribepattern": _pattern, "assign": _assign}
