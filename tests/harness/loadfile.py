"""`--dist loadfile` that survives a crash of a pytest-xdist worker: 3.8.0, the newest release, may wait forever then.

Its scheduler reschedules finished files of a crashed worker, and the test at which it crashed (issues 1323, 1327 and
1378, pull request 1371 of pytest-xdist). So a replacement gets no test, or a single one, which a worker starts only
when it knows the next. After a fixed release, that part can be removed; tests/house/test_flaky.py must still pass.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK = "tests/pipeline/"


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Replaces the scheduler of that name."""
    return LoadFile(config, log) if config.getoption("dist") == "loadfile" else None


class LoadFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files are assigned as a whole; the rest of a crashed worker's files goes to another worker."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Remove an ended worker; returns the test that it was running, None without one."""
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

    def _assign_work_unit(self, node: WorkerController) -> None:
        """The first half of the workers takes the files of Spark first, the others take them last: each worker that has
        one starts a session, which costs as much as many tests.
        """
        nodes = self.nodes
        is_first = node in nodes[: (len(nodes) + 1) // 2]
        file = next((file for file in self.workqueue if file.startswith(SPARK) == is_first), None)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Assign files until the worker has two tests, or knows that there are no more."""
        collected = node in self.registered_collections
        while collected and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
