"""Replay one history: python -m tests.cluster.simulation SEED [steps [kinds of faults, with commas, or all]]."""

from __future__ import annotations

import sys

from .history import History


def main() -> None:
    """Replay the seed on the command line."""
    seed, most = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 60
    history = History(seed, only=sys.argv[3] if len(sys.argv) > 3 else "")
    history.world.print = True
    print(history.run(most))


main()
