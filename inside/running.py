"""A broker that runs on this machine, as a test or a script uses it; it may belong to another program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.inside import topics


class RunningBroker:
    """The address of a broker without authentication, its log, and its topics."""

    def __init__(self, bootstrap: str, log_file: Path) -> None:
        self._bootstrap = bootstrap
        self.log_file = log_file

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's `bootstrap.servers`."""
        return self._bootstrap

    def get_bootstrap_server(self) -> str:
        """`bootstrap`, under the name that it has in testcontainers."""
        return self.bootstrap

    @property
    def log(self) -> str:
        """What the broker has logged."""
        return self.log_since(0)

    def log_since(self, position: int) -> str:
        """The part of the log after its first `position` bytes."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(position)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_size(self) -> int:
        """Bytes that the log has now, a position for `log_since`."""
        try:
            return self.log_file.stat().st_size
        except FileNotFoundError:
            return 0

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, replication_factor: int = 1
    ) -> None:
        """Create a topic. Raises TopicError when the broker refuses it, OSError when it cannot be reached."""
        topics.create(self.bootstrap, name, partitions, replication_factor, configs or {})

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises TopicError when the broker refuses it, OSError when it cannot be reached."""
        topics.delete(self.bootstrap, name)

    def delete_topics(self, prefix: str) -> None:
        """Delete all topics whose names begin with `prefix`. Raises TopicError, or OSError."""
        for name in topics.names(self.bootstrap):
            if name.startswith(prefix):
                topics.delete(self.bootstrap, name)
