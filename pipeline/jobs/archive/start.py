"""Where a run begins: where the archive's commits end, or at the logs' beginnings. A stream's checkpoint is not asked.

So it is no harm when that is lost, and a run may read other topics than the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.pipeline.errors import DataLoss, UnknownTopic
from odradek.pipeline.options import ReadOptions
from odradek.pipeline.reading import losses
from odradek.pipeline.reading.losses import Loss
from odradek.pipeline.types import EARLIEST, LATEST, Partition
from odradek.pipeline.wire.brokers import Brokers

Offsets = dict[Partition, int]
_TOLD = 5  # losses in an error


@dataclass(frozen=True)
class Start:
    """From where to where a run has to go, and what it cannot have any more."""

    begin: Offsets
    end: Offsets
    lost: tuple[Loss, ...] = ()

    @property
    def topics(self) -> list[str]:
        """Those to read, sorted."""
        return sorted({topic for topic, _ in self.end})


def topics(options: ReadOptions) -> list[str]:
    """The topics that are meant. Raises UnknownTopic where some that were named do not exist, or none is found."""
    with Brokers(options.kafka) as brokers:
        return sorted({topic for topic, _ in _partitions(brokers, options)})


def find(options: ReadOptions, archived: Mapping[Partition, int]) -> Start:
    """From `archived`, the archive's offsets, on. Raises DataLoss where they are gone and failOnDataLoss is set."""
    with Brokers(options.kafka) as brokers:
        keys = _partitions(brokers, options)
        first = brokers.offsets(keys, EARLIEST)
        end = brokers.offsets(keys, LATEST, options.committed)
    begin = {key: archived.get(key, first[key]) for key in keys}
    _, lost = losses.between(begin, end, first)
    if lost and options.fail_on_data_loss:
        raise DataLoss(f"{_told(lost)}; --no-fail-on-data-loss goes on without them")
    return Start({key: min(max(begin[key], first[key]), end[key]) for key in keys}, end, tuple(lost))


def _partitions(brokers: Brokers, options: ReadOptions) -> list[Partition]:
    known = brokers.topics()
    if missing := options.subscription.missing(known):
        raise UnknownTopic(f"there is no {', '.join(missing)} (or this user may not see it)")
    if found := options.subscription.partitions(known):
        return found
    raise UnknownTopic(f"no topic matches '{options.subscription.pattern}'")


def _told(lost: list[Loss]) -> str:
    more = f"; and {len(lost) - _TOLD} more" if len(lost) > _TOLD else ""
    return "; ".join(loss.text for loss in lost[:_TOLD]) + more
