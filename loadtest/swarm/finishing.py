"""The end of a distributed run: locust's master waits for its workers' users.

A master that quits gives its workers half a second for their last report. Users here may need longer, because they wait
for their last acknowledgements, and the run must not miss failures then. So the master sends a request and waits for
the responses.
"""

from __future__ import annotations

from typing import Any

import gevent
from locust.runners import MasterRunner, WorkerRunner

FINISH, FINISHED = "swarm-finish", "swarm-finished"
SECONDS = 60

_finished: set[str] = set()


def listen(runner: Any) -> None:
    """Register the messages in this process."""
    if isinstance(runner, WorkerRunner):
        runner.register_message(FINISH, _finish, concurrent=True)
    elif isinstance(runner, MasterRunner):
        runner.register_message(FINISHED, lambda msg, **_: _finished.add(msg.node_id))


def _finish(environment: Any, **_: Any) -> None:
    environment.runner.stop()
    environment.runner.send_message(FINISHED)


def wait(runner: Any) -> None:
    """As master: wait until every worker's users have ended, or until a timeout."""
    if not isinstance(runner, MasterRunner):
        return
    _finished.clear()
    workers = {client.id for client in runner.clients.all}
    runner.send_message(FINISH)
    with gevent.Timeout(SECONDS, False):
        while not workers <= _finished:
            gevent.sleep(0.1)
