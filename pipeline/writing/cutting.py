"""Whether Spark cuts a batch of a stream into the same tasks when it repeats the batch.

Besides the query two things decide behind a shuffle: the number of its partitions, and adaptive execution (AQE), which
coalesces them by the number of cores and by sizes known at run time. Before 4.1 Spark has no AQE in streams and takes
the number from the checkpoint. Since then that holds for stateful operators only; a task still sees the number that the
checkpoint has from the first batch, beside the settings of its query.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.pipeline.errors import PipelineError

ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"
_ADAPTIVE = ("spark.sql.adaptive.enabled", ADAPTIVE)
_FIRST = "spark.sql.streaming.internal.stateStore.partitions"
_DEFAULT = "200"  # Spark's own; a task sees only settings that are set


def check(setting: Callable[[str], str | None]) -> None:
    """PipelineError where a repeated batch may have other tasks. `setting` returns a setting of the query by name.

    Spark takes FALSE for false, and blanks around a value.
    """
    if all((setting(name) or "").strip().lower() != "false" for name in _ADAPTIVE):
        raise PipelineError(
            f"odradek.transactional: adaptive execution may cut a repeated batch into other tasks; set {ADAPTIVE}=false"
        )
    first, now = setting(_FIRST), setting(PARTITIONS) or _DEFAULT
    if first is not None and int(first) != int(now):
        raise PipelineError(
            f"odradek.transactional: {PARTITIONS} is {now} but was {first} in the stream's first batch, so a repeated "
            "batch may have other tasks; set it back"
        )
