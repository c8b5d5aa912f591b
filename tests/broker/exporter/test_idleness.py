"""The share of time in which workers are idle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.exporter.idleness import Idleness


def test_the_mean_over_the_workers() -> None:
    idleness = Idleness()
    assert idleness.share(100, {"worker-0": 5, "worker-1": 7}) == 1, "the first reading has no former one"
    assert idleness.share(104, {"worker-0": 9, "worker-1": 7}) == 0.5


def test_only_the_last_minute_counts() -> None:
    idleness = Idleness()
    shares = [idleness.share(float(second), {"worker-0": float(min(second, 100))}) for second in range(0, 300, 5)]
    assert shares[1:20] == [0] * 19
    assert shares[-1] == 1


@given(st.lists(st.dictionaries(st.sampled_from(["worker-0", "worker-1"]), st.floats(0, 1e6)), min_size=1))
def test_workers_come_and_go(readings: list[dict[str, float]]) -> None:
    """A restarted worker has less CPU time than before."""
    idleness = Idleness()
    for number, reading in enumerate(readings):
        assert 0 <= idleness.share(number * 3.0, reading) <= 1
