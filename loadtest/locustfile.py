"""The file that locust loads: `locust -f loadtest/locustfile.py --host HOST:PORT` runs the swarm's users on any broker.

`make locust` starts a separate broker for it, and compares acknowledged records with the log.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import gevent
from locust import events, runners
from locust.log import greenlet_exception_logger
from locust.runners import WorkerRunner

from odradek.loadtest.swarm import base, charts, finishing, lag, metrics, options
from odradek.loadtest.swarm.bursty import Bursty
from odradek.loadtest.swarm.consumer import GroupMember
from odradek.loadtest.swarm.mixed import Mixed
from odradek.loadtest.swarm.producer import Producer
from odradek.loadtest.swarm.script import Script
from odradek.loadtest.swarm.shapes import SHAPES, Ramp, Soak, Spike

__all__ = ["Bursty", "GroupMember", "Mixed", "Producer", "Ramp", "Script", "Soak", "Spike"]

PATIENCE_SECONDS = 20

runners.HEARTBEAT_LIVENESS = PATIENCE_SECONDS  # a worker that is short of CPU is not dead
charts.choose()
metrics.fine_buckets()
events.init_command_line_parser.add_listener(options.add)


@events.init.add_listener
def begin(environment: Any, runner: Any, web_ui: Any, **_: Any) -> None:
    """Apply the swarm's options to this process."""
    shape = SHAPES.get(environment.parsed_options.shape)
    environment.shape_class = shape(runner) if shape else None
    finishing.listen(runner)
    if not isinstance(runner, WorkerRunner):
        for watch in (gevent.spawn(charts.keep_history, runner), gevent.spawn(lag.watch, environment)):
            watch.link_exception(greenlet_exception_logger(logging.getLogger(__name__)))  # fails the run
    if web_ui:
        charts.into_page(web_ui, runner)


@events.test_start.add_listener
def prepare(environment: Any, **_: Any) -> None:
    """Before any user: set up the ledger in each process, and the topics in the master or the only process."""
    random.seed()  # forked workers would behave alike
    folder = environment.parsed_options.ledger
    base.ledger.folder = Path(folder) if folder else None
    if not isinstance(environment.runner, WorkerRunner):
        # In a thread: a blocked master would take its workers for dead.
        gevent.get_hub().threadpool.apply(
            options.create_topics, (environment.host, environment.parsed_options.partitions)
        )


@events.test_stopping.add_listener
def await_workers(environment: Any, **_: Any) -> None:
    """A master ends after all users."""
    finishing.wait(environment.runner)


@events.test_stop.add_listener
def keep_ledger(**_: Any) -> None:
    """Flush all acknowledgements to the files."""
    base.ledger.flush()
