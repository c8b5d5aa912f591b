"""The end of a distributed run: locust's master waits for its workers' users.

A master that quits gives its workers half a second for their last report. Users here may need longer, since they wait
for their last acknowledgements, and what fails then must not be missed. So the master asks and waits for the answers.
"""

from __future__ import annotations

from typing import Any

import gevent
from locust.runners import MasterRunner, WorkerRunner

FINISH, FINISHED = "swarm-finish", "swarm-finished"
SECONDS = 60

_finished: set[str] = set()


def listen(runner: Any) -> None:
    """Make this process know the messages."""
    if isinstance(runner, WorkerRunner):
        runner.register_message(FINISH, _finish, concurrent=True)
    elif isinstance(runner, MasterRunner):
        runner.register_message(FINISHED, lambda msg, **_: _finished.add(msg.node_id))


def _finish(environment: Any, **_: Any) -> None:
    environment.runner.stop()
    environment.runner.send_message(FINISHED)


def wait(runner: Any) -> None:
    """As master: until every worker's users have ended, or too much time has passed."""
    if not isinstance(runner, MasterRunner):
        return
    _finished.clear()
    workers = {client.id for client in runner.clients.all}
    runner.send_message(FINISH)
    with gevent.Timeout(SECONDS, False):
        while not workers <= _finished:
            gevent.sleep(0.1)
