"""The file with the id of the ZooKeeper session, for the next process."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.controller.member import join
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.interbroker import zookeeper_session
from odradek.cluster.tree.tree import BadVersion, NotDone, TreeError, TreeUnavailable
from odradek.cluster.tree.znodes import MalformedNode
from odradek.ipc.rundir import SESSION_FILE

FIRST, SECOND = (1, b"secret"), (2, b"another")


def test_the_last_session_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert zookeeper_session.former_session(tmp_path) is None
    for credentials in (FIRST, SECOND):
        zookeeper_session.save_session(tmp_path, credentials)
        assert zookeeper_session.former_session(tmp_path) == credentials
    assert (tmp_path / SESSION_FILE).stat().st_mode & 0o777 == 0o600
    zookeeper_session.forget_session(tmp_path)
    assert zookeeper_session.former_session(tmp_path) is None


def test_a_session_that_cannot_be_named_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Such as on a full disk: the broker works all the same, and the file has no id of an ended session."""
    zookeeper_session.save_session(tmp_path, FIRST)
    (tmp_path / f"{SESSION_FILE}.new").mkdir()
    zookeeper_session.save_session(tmp_path, SECOND)
    assert zookeeper_session.former_session(tmp_path) is None
    assert "zookeeper-session" in caplog.text


class Failing:
    """A tree on which every call fails."""

    def __init__(self, error: Exception) -> None:
        self.closed = False
        self._error = error

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise self._error

        return fail


@pytest.mark.parametrize("second", [False, True])
def test_a_former_registration_is_waited_for_as_long_as_its_session_lasts(
    monkeypatch: pytest.MonkeyPatch, second: bool
) -> None:
    """ZooKeeper grants this timeout, which may exceed zookeeper.session.timeout.ms."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    there: Any = SimpleNamespace(
        session_ms=60_000, exists=lambda _: True if second or now[0] < 61 else None, find=lambda _: b"somewhere"
    )
    expected = pytest.raises(BootError, match="another broker's") if second else nullcontext()
    with expected:
        zookeeper_session._refuse_second(there, 1)
    assert 61 <= now[0] < 65


@pytest.mark.parametrize("error", [TreeUnavailable("/"), NotDone("/"), BadVersion("/"), MalformedNode("nonsense")])
@pytest.mark.parametrize("successor", [True, False])
def test_resumed_session_survives_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: TreeError | MalformedNode, successor: bool
) -> None:
    """Ending the session would remove the registration of a serving broker. A temporary failure must not do so."""
    tree = Failing(error)
    monkeypatch.setattr(zookeeper_session, "open_tree", lambda config, former: tree)
    process: Any = SimpleNamespace(config={"broker.id": 1, "zookeeper.connect": "zk:1"}, run_dir=tmp_path)
    with pytest.raises(OdradekError, match="ZooKeeper at zk:1") as raised:
        join.join(process, SimpleNamespace() if successor else None)  # type: ignore[arg-type]  # a test double
    assert isinstance(raised.value, BootError) != isinstance(error, TreeUnavailable)
    assert tree.closed == (not successor)
