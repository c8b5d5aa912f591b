"""The audit log: each kind of refusal once a window, and a bounded number of kinds."""

from __future__ import annotations

import logging
import time

import pytest

from odradek.security.acls.acl_types import Operation, ResourceType
from odradek.workers.dispatch import audit
from odradek.workers.dispatch.audit import MOST, Refusals


@pytest.fixture(autouse=True)
def messages(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, audit.NAME)
    return caplog


def refuse(refusals: Refusals, name: str) -> None:
    refusals.log("User:alice", "10.0.0.1", Operation.READ, ResourceType.TOPIC, name, "Fetch")


def test_refusal_names_principal_host_operation_and_resource(messages: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for _ in range(3):
        refuse(refusals, "orders")
    assert messages.messages == ["refused: User:alice from 10.0.0.1: Read on Topic orders (Fetch)"]


def test_refusals_are_bounded_and_omitted_ones_are_counted(
    messages: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refusals = Refusals()
    for number in range(MOST + 5):
        refuse(refusals, f"t{number}")
    assert len(messages.messages) == MOST
    now = audit.WINDOW_S
    refuse(refusals, "t0")
    assert messages.messages[MOST:] == [
        "refused: 5 more requests", "refused: User:alice from 10.0.0.1: Read on Topic t0 (Fetch)"
    ]  # fmt: skip


def test_change_names_principal_host_and_action(messages: pytest.LogCaptureFixture) -> None:
    audit.changed("User:admin", "10.0.0.2", "created topic orders")
    assert messages.messages == ["changed: User:admin from 10.0.0.2: created topic orders"]
