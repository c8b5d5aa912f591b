"""Controlled shutdown: before this broker stops, its leadership moves to others, so that no client waits for elections.

The supervisor announces the stop in shared memory, rings, and waits until this process reports that it has left the
cluster. This process asks the elected controller, up to controlled.shutdown.max.retries + 1 times; if that fails or
there is no controller, the broker stops anyway, and its partitions get other leaders when its session ends.
Once others lead, this broker stops leading at once: its controller's requests may be lost with the connections that it
closes. Otherwise requests waiting for followers' acknowledgements would delay the stop until they time out.

A stopping broker no longer runs for controller. It will soon refuse clients and brokers, and others challenge a
controller that refuses connections (broker.controller.elected.controller_node). A controller therefore resigns first
and asks its successor like any broker; the successor then knows that this broker leads nothing more. Without another
broker it asks itself, as the last controller. If all brokers stop at once, there is no successor: the first to find
that is elected once more and asks itself.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from odradek.broker.controller.elected.candidate import Candidate
from odradek.broker.controller.elected.elected import Elected
from odradek.broker.controller.replicas.controller_requests import ControllerRequests
from odradek.broker.interbroker.peers import CLIENT_ID, Peer
from odradek.broker.process.process import Process
from odradek.broker.supervisor.stop_limits import ANSWER_S
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree.tree import TreeError
from odradek.protocol import interbroker
from odradek.protocol.errors import NONE

log = logging.getLogger(__name__)

_VERSION = 3
_VACANT_S = 0.5  # after which a broker that stays would have been elected

_STAYING, _ASKING, _RESIGNING, _GONE = range(4)


class ControlledShutdown:
    """One broker's controlled shutdown."""

    def __init__(self, process: Process, candidate: Candidate, controller_requests: ControllerRequests) -> None:
        self._process = process
        self._candidate = candidate
        self._controller_requests = controller_requests
        self._own = process.config["broker.id"]
        self._state = _STAYING
        self._tries = 0
        self._try_at = math.inf
        self._last_controller: Peer | None = None  # the last controller asked, if it is another broker
        self._vacant = False  # there was no controller when this broker asked

    def due(self) -> float:
        """When `tick` next has work (monotonic seconds): at once if the broker asked is no longer controller."""
        if self._state != _ASKING:
            return math.inf
        return self._try_at if self._candidate.holder_peer is self._last_controller else 0.0

    def begin(self) -> None:
        """The broker stops: start asking, only on the first call."""
        if self._state != _STAYING:
            return
        self._state, self._try_at = _ASKING, 0.0
        self._candidate.withdraw()
        self._tries = self._process.config["controlled.shutdown.max.retries"] + 1
        registered = self._controller_requests.broker_epoch > 0
        if not (registered and self._process.config["controlled.shutdown.enable"]):
            self._leave()

    def tick(self, now: float) -> None:
        """Ask, and ask again if there was no success."""
        if now < self.due():
            return
        if self._last_controller is not None and self._candidate.holder_peer is None:
            self._last_controller = None
            self._vacated("the controller failed before it answered")
            return
        if not self._tries:
            log.warning("controlled shutdown failed: the partitions this broker leads wait for elections")
            self._leave()
            return
        self._tries -= 1
        self._try_at = now + ANSWER_S
        self._request()

    def _request(self) -> None:
        elected, self._last_controller = self._candidate.elected, self._candidate.holder_peer
        if elected is not None and not self._vacant and self._others(elected):
            self._candidate.release()
            self._vacated("waiting for another broker to become the controller")
        elif elected is not None:
            self._request_locally(elected)
        elif self._last_controller is not None:
            self._send(self._last_controller)
        elif self._vacant:
            self._resume_candidacy()
        else:
            self._vacated("no controller is known")

    def _vacated(self, why: str) -> None:
        self._vacant = True
        self._retry(why, _VACANT_S)

    def _resume_candidacy(self) -> None:
        """No other broker is elected: become controller once more, or find the one there is."""
        try:
            self._candidate.resume()
        except TreeError as error:
            self._retry(str(error))
        else:
            self._retry("no controller is elected", 0)

    def _others(self, elected: Elected) -> set[int]:
        """Brokers that can be controller after this one."""
        return elected.context.live.keys() - elected.context.shutting_down - {self._own}

    def _request_locally(self, elected: Elected) -> None:
        try:
            self._handle_remaining(
                len(elected.elections.controlled_shutdown(self._own, self._controller_requests.broker_epoch))
            )
        except (ApiError, TreeError) as error:
            self._retry(str(error))

    def _send(self, peer: Peer) -> None:
        own, epoch = self._own, self._controller_requests.broker_epoch
        peer.send(
            lambda number: interbroker.request(
                "ControlledShutdown", _VERSION, number, CLIENT_ID, broker_id=own, broker_epoch=epoch
            ),
            self._answered,
        )

    def _answered(self, frame: bytes) -> None:
        answer: Any = interbroker.response("ControlledShutdown", _VERSION, frame)[1]
        if answer.error_code != NONE:
            self._retry(f"error {answer.error_code}")
        else:
            self._handle_remaining(len(answer.remaining_partitions))

    def _handle_remaining(self, remaining: int) -> None:
        if remaining:
            self._retry(f"{remaining} partitions have no other replica in sync")
        else:
            log.info("controlled shutdown completed: other brokers lead its partitions")
            self._state = _RESIGNING
            self._controller_requests.resign(self._leave)

    def _retry(self, why: str, longest_s: float = math.inf) -> None:
        log.info("controlled shutdown: %s", why)
        pause = min(longest_s, self._process.config["controlled.shutdown.retry.backoff.ms"] / 1000)
        self._try_at = time.monotonic() + (pause if self._tries else 0)

    def _leave(self) -> None:
        self._state = _GONE
        self._candidate.withdraw()
        self._candidate.release()
        self._process.mark_left_cluster()
