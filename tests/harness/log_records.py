"""pytest keeps only the text of log records.

A record's arguments would keep the partitions that it names, with their memory maps, until the module's fixtures have
ended: hundreds of descriptors after a test that repairs many logs.
"""

from __future__ import annotations

import pytest
from _pytest.logging import caplog_records_key


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The test has checked its records. Some formatters leave a record without its message: PySpark's does."""
    for records in item.stash.get(caplog_records_key, {}).values():
        for record in records:
            record.msg, record.args, record.exc_info = record.getMessage(), None, None
