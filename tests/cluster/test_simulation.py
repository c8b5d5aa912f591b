"""Random histories of a whole simulated cluster: whatever happens, nothing acknowledged is lost and all becomes well.

One that fails names its seed: `python -m tests.cluster.simulation SEED` tells it again.
"""

from __future__ import annotations

import pytest

from .simulation.history import History, explained

SHORT, LONG, TOGETHER = 200, 6000, 25


def run(first: int, count: int) -> None:
    """Histories of these seeds."""
    for seed in range(first, first + count):
        try:
            History(seed).run()
        except Exception as error:
            pytest.fail(f"{explained(seed)}\n{error!r}\nseed {seed}: python -m tests.cluster.simulation {seed}")


@pytest.mark.parametrize("first", range(0, SHORT, TOGETHER))
def test_histories(first: int) -> None:
    run(first, TOGETHER)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SHORT, LONG, 200))
def test_many_histories(first: int) -> None:
    run(first, 200)


def test_a_history_happens_again() -> None:
    def told(seed: int) -> list[str]:
        history = History(seed)
        history.world.trace.__init__(maxlen=1_000_000)  # type: ignore[misc]
        history.run()
        return list(history.world.trace)

    assert told(7) == told(7)
