"""What a user of the pipeline is told: one line that says what to change."""

from __future__ import annotations


class PipelineError(Exception):
    """A wrong option, an unknown topic, a cluster that does not answer."""


class OptionError(PipelineError):
    """An option that cannot be meant so."""


class UnknownTopic(PipelineError):
    """No such topic or partition."""


class DataLoss(PipelineError):
    """Offsets that were to be read are no more (failOnDataLoss)."""


class Unreadable(PipelineError):
    """Another client cannot tell what a record has."""


class MissingOffsets(DataLoss):
    """Offsets that should be there and that no batch has: lost, or their batch is damaged."""
