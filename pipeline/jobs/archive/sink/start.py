"""Where a run begins: at the end of the archive's commits, or at the logs' first offsets, not at a stream's checkpoint.

So a lost checkpoint does no harm, and a run may read other topics than the last. Offsets cannot show that a topic was
deleted and recreated, so topics are identified by their ids, where brokers have any.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.pipeline.errors import DataLoss, PipelineError, UnknownTopic
from odradek.pipeline.jobs.archive.store.manifest import State
from odradek.pipeline.reading import losses
from odradek.pipeline.reading.losses import Loss
from odradek.pipeline.reading.offsets import names
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.types import EARLIEST, LATEST, Partition
from odradek.pipeline.wire.brokers import Brokers

log = logging.getLogger(__name__)

Offsets = dict[Partition, int]
_NEEDED = ("cleanup.policy", "max.message.bytes")  # wherever they come from: they decide whether records fit, and stay
_TOLD = 5  # the most losses, or topics, in an error


@dataclass(frozen=True)
class Start:
    """The start and end offsets of a run, its topics' ids, and its losses.

    A partition whose log ends before the archive's end begins beyond the log's end. `others` are topics that match the
    pattern but are not the archived ones: they are skipped.
    """

    begin: Offsets
    end: Offsets
    ids: Mapping[str, str]
    lost: tuple[Loss, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def topics(self) -> list[str]:
        """The topics to read, sorted."""
        return sorted({topic for topic, _ in self.end})


def topics(options: ReadOptions) -> list[str]:
    """The selected topics. Raises UnknownTopic where some that were named do not exist, or none matches."""
    with Brokers(options.kafka) as brokers:
        return sorted({topic for topic, _ in _partitions(brokers, options)})


def find(options: ReadOptions, archived: State) -> Start:
    """Start at the archive's end.

    Raises DataLoss where those offsets are gone and failOnDataLoss is set, PipelineError where a topic that was named,
    or each one that matches, is not the archived one.
    """
    with Brokers(options.kafka) as brokers:
        keys = _partitions(brokers, options, archived.offsets)
        ids = _ids(brokers, {topic for topic, _ in keys})
        others = _others(ids, archived.ids)
        keys = [key for key in keys if key[0] not in others]
        if others and not (keys and options.subscription.pattern):
            raise made_again(others)
        first = brokers.offsets(keys, EARLIEST)
        end = brokers.offsets(keys, LATEST, options.committed)
    begin = {key: archived.offsets.get(key, first[key]) for key in keys}
    lost = _lost(begin, end, first)
    if lost and options.fail_on_data_loss:
        raise DataLoss(f"{_few([loss.text for loss in lost], '; ')}; --no-fail-on-data-loss continues without them")
    return Start({key: max(begin[key], first[key]) for key in keys}, end, ids, tuple(lost), tuple(others))


def ids(options: ReadOptions, topics: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """The current ids of existing topics. Raises PipelineError where one differs from the known id."""
    with Brokers(options.kafka) as brokers:
        found = _ids(brokers, topics)
    if others := _others(found, known):
        raise made_again(others)
    return found


def configs(options: ReadOptions, topics: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """The topics' settings, for a restore; none, with a warning, where the brokers do not return them."""
    try:
        with Brokers(options.kafka) as brokers:
            return brokers.own_configs(topics, _NEEDED)
    except PipelineError as why:
        log.warning("%s: the archive does not know it, and restore cannot set it", why)
        return {}


def made_again(topics: Sequence[str]) -> PipelineError:
    """The error for topics that are not the archived ones."""
    return PipelineError(
        f"{_few(topics, ', ')}: recreated since it was archived, and the records of both topics would mix; archive to "
        "another folder (--to), or leave it out"
    )


def _ids(brokers: Brokers, topics: Iterable[str]) -> dict[str, str]:
    answer = brokers.metadata(sorted(topics))
    there = (topic for topic in answer.topics if not topic.error_code)
    return {topic.name: topic.topic_id.hex for topic in there if topic.topic_id and topic.topic_id.int}


def _others(found: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    return [topic for topic, id in sorted(found.items()) if known.get(topic, id) != id]


def _lost(begin: Offsets, end: Offsets, first: Offsets) -> list[Loss]:
    """Offsets deleted before they could be read; and logs that went back, whose losses are unknown."""
    back = {key: begin[key] for key in sorted(begin) if end[key] < begin[key]}
    _, lost = losses.between(begin, end | back, first)
    gone_back = "{} is archived up to offset {} and now ends at {}"
    return lost + [Loss(gone_back.format(names([key]), until, end[key]), 0) for key, until in back.items()]


def _partitions(brokers: Brokers, options: ReadOptions, archived: Iterable[Partition] = ()) -> list[Partition]:
    """The selected ones; of the `archived` ones none is missing because one broker's metadata lags behind."""
    counts = Counter(topic for topic, _ in archived)
    if found := options.subscription.existing(brokers.topics(options.subscription.partitions(counts))):
        return found
    raise UnknownTopic(f"no topic matches '{options.subscription.pattern}'")


def _few(texts: Sequence[str], between: str) -> str:
    more = f"{between}and {len(texts) - _TOLD} more" if len(texts) > _TOLD else ""
    return between.join(texts[:_TOLD]) + more
