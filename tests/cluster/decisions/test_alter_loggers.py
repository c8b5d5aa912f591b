"""Which changes of log levels are refused, with Kafka's error codes and texts (RuntimeLoggerManager)."""

from __future__ import annotations

import pytest

from odradek.cluster.decisions import alter_loggers
from odradek.cluster.decisions.alter import APPEND, DELETE, SET, SUBTRACT, ConfigChange
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import INVALID_CONFIG, INVALID_REQUEST


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (ConfigChange("none", SET, "INFO"), INVALID_CONFIG, "Logger none does not exist!"),
        (ConfigChange("none", DELETE, None), INVALID_CONFIG, "Logger none does not exist!"),
        (ConfigChange("a", SET, "LOUD"), INVALID_CONFIG, "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        (ConfigChange("a", SET, "info"), INVALID_CONFIG, "not a supported log level"),
        (ConfigChange("root", DELETE, None), INVALID_REQUEST, "Removing the log level of the root logger"),
        (ConfigChange("a", APPEND, "INFO"), INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER"),
        (ConfigChange("a", SUBTRACT, "INFO"), INVALID_REQUEST, "SUBTRACT operation is not allowed for the BROKER_LOG"),
    ],
)
def test_refused_changes(change: ConfigChange, code: int, words: str) -> None:
    good = ConfigChange("a", SET, "DEBUG")
    with pytest.raises(ApiError, match=words) as raised:
        alter_loggers.check([good, change], {"root", "a"}.__contains__)
    assert raised.value.code == code


def test_accepted_changes() -> None:
    changes = [ConfigChange("root", SET, "TRACE"), ConfigChange("a", DELETE, None)]
    alter_loggers.check(changes, {"root", "a"}.__contains__)
    assert alter_loggers.levels(changes) == {"root": "TRACE", "a": None}


@pytest.mark.parametrize("name", ["", "one", "2", "-1"])
def test_other_brokers_are_refused(name: str) -> None:
    with pytest.raises(ApiError) as raised:
        alter_loggers.check_broker(name, 1)
    assert raised.value.code == INVALID_REQUEST
    alter_loggers.check_broker("1", 1)
