"""Errors that a user of the pipeline sees: one line that says what to change."""

from __future__ import annotations


class PipelineError(Exception):
    """A wrong option, an unknown topic, a cluster that does not answer."""


class OptionError(PipelineError):
    """An option with an invalid value."""


class UnknownTopic(PipelineError):
    """No such topic or partition."""


class DataLoss(PipelineError):
    """Offsets that should be read no longer exist (failOnDataLoss)."""


class Unreadable(PipelineError):
    """Another client cannot represent what a record contains."""


class MissingOffsets(DataLoss):
    """Offsets that should exist but are in no batch: lost, or their batch is damaged."""
