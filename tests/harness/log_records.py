"""What pytest keeps of the log: the text.

A record's arguments would keep the partitions that it names, with the maps of their worlds, until the module's fixtures
have ended: hundreds of descriptors after a test that repairs one world after another.
"""

from __future__ import annotations

import pytest
from _pytest.logging import caplog_records_key


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The test has looked at its records. Not each formatter leaves a record its message: PySpark's does not."""
    for records in item.stash.get(caplog_records_key, {}).values():
        for record in records:
            record.msg, record.args, record.exc_info = record.getMessage(), None, None
