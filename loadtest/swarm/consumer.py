"""A member of a consumer group, like one instance of a service."""

from __future__ import annotations

import itertools

from locust import task

from odradek.loadtest.swarm.base import KafkaUser
from odradek.loadtest.swarm.options import EVENTS, group_name

_members = itertools.count()


class GroupMember(KafkaUser):
    """Reads its group's assignment. Users join one by one, so the ramp-up is a chain of rebalances."""

    weight = 3

    def on_start(self) -> None:
        """Join the groups in turn."""
        self.open_reader(group_name(next(_members) % self.options.groups), EVENTS)

    @task
    def follow(self) -> None:
        """Continue reading."""
        self.read()
