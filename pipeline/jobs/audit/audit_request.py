"""The command line of an audit: what to compare, and the period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs.audit import cluster
from odradek.pipeline.jobs.audit.period import Period
from odradek.pipeline.parsing import duration


class Stage(NamedTuple):
    """A stage passes all records of `topic` on to these topics."""

    topic: str
    to: tuple[str, ...]


@dataclass(frozen=True)
class AuditRequest:
    """`now` and durations in ms; no `topics`: all."""

    now: int
    kafka: Mapping[str, str] = field(repr=False)  # may hold a password
    audit_topic: str | None
    archive: str | None
    stages: Sequence[Stage]
    topics: Sequence[str]
    last: int
    grace: int
    window: int | None

    @classmethod
    def parse(
        cls, now: int, *, topics: str, stages: Sequence[str], last: str, grace: str, window: str | None, **rest: Any
    ) -> AuditRequest:
        """OptionError for invalid options."""
        request = cls(
            now=now,
            stages=list(dict.fromkeys(map(_stage, stages))),
            topics=_names(topics, ","),
            last=duration("--last", last),
            grace=duration("--grace", grace),
            window=duration("--window", window) if window else None,
            **rest,
        )
        request._check_compared()
        if request.window == 0:
            raise OptionError("--window must be a duration above 0")
        Period.before(now, request.last, request.grace, request.window or 1)  # producers' windows are not shorter
        return request

    def _check_compared(self) -> None:
        if not (self.audit_topic or self.archive or self.stages):
            raise OptionError("nothing to compare the log with: give --audit-topic, --archive or --stage")
        if self.topics and (others := {stage.topic for stage in self.stages}.difference(self.topics)):
            raise OptionError(f"--stage names {', '.join(sorted(others))}, which --topics does not name")

    def check(self) -> None:
        """Check that the topics exist and the settings are valid. PipelineError if not, or if no broker answers."""
        named = {*self.topics, *(name for stage in self.stages for name in (stage.topic, *stage.to))}
        cluster.check(self.kafka, named | ({self.audit_topic} if self.audit_topic else set()))


def _stage(text: str) -> Stage:
    topic, _, several = text.partition("=")
    names = _names(several, "+")
    if not topic.strip() or not names:
        raise OptionError(f"--stage must be FROM=TO or FROM=TO+TO, not '{text}'")
    return Stage(topic.strip(), tuple(names))


def _names(text: str, separator: str) -> list[str]:
    return [name.strip() for name in text.split(separator) if name.strip()]
