"""A request for thousands of partitions: the controller serves others meanwhile, or dies during it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster import internal
from odradek.ipc import slots
from odradek.protocol.library import message_class

from ..harness.process import wait_until
from .controller_harness import ControllerHarness, create_request

pytestmark = pytest.mark.live

UNKNOWN_TOPIC, ALREADY_EXISTS = 3, 36
MANY = 5_000
SOME = 1_500  # more than one turn of the controller's loop can create on any disk


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerHarness]:
    made = ControllerHarness(tmp_path)
    try:
        yield made.start()
    finally:
        made.close()


def decoded(controller: ControllerHarness, token: int, name: str, version: int) -> Any:
    return message_class(name).decode(memoryview(controller.take(token)), version=version)


def created(controller: ControllerHarness, token: int) -> int:
    """The error code of the creation."""
    return int(decoded(controller, token, "CreateTopicsResponse", 7).topics[0].error_code)


def more(name: str, count: int) -> Any:
    request = message_class("CreatePartitionsRequest")
    topic = request.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return request[3](topics=[topic], timeout_ms=60_000, validate_only=False)


def added(controller: ControllerHarness, token: int) -> int:
    return int(decoded(controller, token, "CreatePartitionsResponse", 3).results[0].error_code)


def check_complete(controller: ControllerHarness, name: str, partitions: int) -> None:
    """Check that all partitions are published, each with its own slot and a log that is led."""
    rows = controller.snapshot().topics[name].partitions
    assert len(rows) == partitions
    states = [controller.shared.slots[row.slot].state() for row in rows]
    assert all(state.state == slots.LEADER for state in states)
    assert [state.incarnation for state in states] == [row.incarnation for row in rows]
    assert len({row.slot for row in rows}) == partitions
    found = controller.directories()
    assert {f"{name}-{index}" for index in range(partitions)} <= set(found)
    for index in range(0, partitions, 97):
        assert Path(controller.data_dir, f"{name}-{index}", f"{0:020d}.log").exists()


def test_other_requests_are_served_during_a_large_creation(controller: ControllerHarness) -> None:
    big = controller.send(create_request("big", MANY))
    again = controller.send(create_request("big", 1))
    small = controller.send(create_request("small"))
    ids = controller._send(internal.PRODUCER_IDS, 0, internal.encode({}))
    wait_until(lambda: controller.answered(small), 60, "the small topic")
    assert list(controller.snapshot().topics) == ["small"], "an incomplete topic is not published"
    wait_until(lambda: controller.answered(big), 600, "the big topic")
    assert list(controller._answers)[-1] == big
    assert (created(controller, again), created(controller, small)) == (ALREADY_EXISTS, 0)
    assert internal.decode(controller.take(ids))["count"]
    assert created(controller, big) == 0
    check_complete(controller, "small", 1)
    check_complete(controller, "big", MANY)


def test_added_partitions_are_published_together(controller: ControllerHarness) -> None:
    controller.create("t", 2)
    first, second = controller.send(more("t", SOME)), controller.send(more("t", SOME + 1))
    small = controller.send(create_request("small"))
    wait_until(lambda: controller.answered(small), 60, "the small topic")
    assert len(controller.snapshot().topics["t"]) == 2
    wait_until(lambda: controller.answered(second), 600, "the partitions")
    assert list(controller._answers) == [small, first, second]
    assert (added(controller, first), added(controller, second)) == (0, 0)
    check_complete(controller, "t", SOME + 1)


def test_topic_deleted_during_its_creation_is_removed(controller: ControllerHarness) -> None:
    big = controller.send(create_request("big", SOME))
    assert [row.error_code for row in controller.delete("big")] == [0]
    assert created(controller, big) == UNKNOWN_TOPIC
    assert not controller.snapshot().topics
    assert all(name.endswith("-delete") for name in controller.directories())
    assert controller.create("big", 2).error_code == 0
    check_complete(controller, "big", 2)


@pytest.mark.parametrize("reboot", [False, True])
def test_next_controller_completes_a_creation(controller: ControllerHarness, reboot: bool) -> None:
    """The request is in the tree, so the next controller creates the missing partitions."""
    controller.create("t", 2)
    big, grown = controller.send(create_request("big", SOME)), controller.send(more("t", SOME // 2))
    small = controller.send(create_request("small"))
    wait_until(lambda: controller.answered(small), 60, "the small topic")
    assert not controller.answered(big, 0)
    assert not controller.answered(grown, 0)
    controller.kill()
    if reboot:
        controller.fresh_memory()
    controller.start()
    assert controller.create("big", 1).error_code == ALREADY_EXISTS
    check_complete(controller, "big", SOME)
    check_complete(controller, "t", SOME // 2)
    epochs = {row.leader_epoch for row in controller.snapshot().topics["big"].partitions}
    assert epochs == {int(reboot)}, "a start on new memory raises the epochs in all state nodes"
    controller.call(more("big", SOME + 1))
    check_complete(controller, "big", SOME + 1)
