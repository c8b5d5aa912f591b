"""`--dist loadfile` that goes on after a worker of pytest-xdist has crashed: 3.8.0, the newest, may wait for ever then.

Its scheduler gives out again what a crashed worker had done, and the test that it crashed at (issues 1323, 1327 and
1378, pull request 1371 of pytest-xdist). So a replacement is given nothing to do, or one test alone, which a worker
begins only when it knows the next. When a release has mended that, this file can go; tests/house/test_flaky.py holds.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Ours in the place of the one of that name."""
    return LoadFile(config, log) if config.getoption("dist") == "loadfile" else None


class LoadFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files are given out whole; what a crashed worker had left of them goes to another one."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Of a worker that has ended; the test that it was at, None where it had none to do."""
        files = self.assigned_work.pop(node)
        left = {file: [name for name, done in tests.items() if not done] for file, tests in files.items()}
        crashed = next((names[0] for names in left.values() if names), None)
        for file, names in left.items():
            rest = dict.fromkeys((name for name in names if name != crashed), False)
            if rest:
                self.workqueue[file] = rest
        if crashed is not None:
            for other in self.assigned_work:
                self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give out files until the worker knows two tests, or is told that there are no more."""
        collected = node in self.registered_collections
        while collected and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
