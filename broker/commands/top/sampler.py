"""Takes what `odradek top` shows from shared memory, /proc and files; sends nothing to any process.

Groups are those that this broker coordinates; their offsets are read only while their view is shown, and so are the
clients' addresses. Files of a partition are looked at only while its row is shown.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import psutil

from odradek.broker.commands.top import views
from odradek.broker.commands.top.screen import Shown
from odradek.broker.config import BrokerConfig
from odradek.broker.exporter import log_sizes, sample_faults
from odradek.broker.exporter.scrape import Sample, Scraper
from odradek.broker.findings import findings
from odradek.broker.process import process
from odradek.broker.process.process import Process
from odradek.ipc import roles, rundir
from odradek.ipc.shm import Shared

GROUPS, CLIENTS = 4, 5  # views


class Sampler:
    """One broker. Raises RegionError or OSError when it is gone."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._shared = Shared.attach(rundir.shm_prefix(config.data_dir))
        locks = process.role_locks(config)
        self._scraper = Scraper(Process(roles.EXPORTER, Path(config.run_dir), config, locks, self._shared))
        self._former: tuple[float, Sample] | None = None

    def take(self, tab: int) -> Shown:
        """A sample for the view `tab`."""
        sample, now = self._scraper.look(groups=tab == GROUPS), time.monotonic()
        former = self._former or (now, sample)
        self._former = now, sample
        seconds = max(1e-3, now - former[0])
        found = sample_faults.find(self._config, self._shared, sample)
        tables = [
            views.wrong(found),
            views.processes(former[1], sample, seconds),
            *views.partitions(former[1], sample, seconds, self._log_size),
            views.groups(sample),
            views.clients(self._clients(sample) if tab == CLIENTS else Counter()),
        ]
        return Shown(findings.summary(found), views.head(former[1], sample, seconds), tables)

    def _log_size(self, topic: str, index: int, log_dir: int) -> int:
        """Bytes of the partition's segments."""
        dirs = self._config.log_dirs
        return log_sizes.size_of(Path(dirs[log_dir], f"{topic}-{index}")) if log_dir < len(dirs) else 0

    def _clients(self, sample: Sample) -> Counter[tuple[str, str]]:
        """Connections by the address of the client and the process that serves it; none of another user's broker."""
        found: Counter[tuple[str, str]] = Counter()
        for one in sample.processes:
            if one.alive and one.is_worker:
                try:
                    links = psutil.Process(int(one.counters["pid"])).net_connections("tcp")
                except psutil.Error:
                    continue
                found.update((link.raddr.ip, one.name) for link in links if link.raddr)
        return found
