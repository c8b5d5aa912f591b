"""No core dumps of processes that hold secrets: a dump has passwords and keys, and is a file that others may read.

Only the soft limit is lowered, so prlimit can raise it to look for a crash.
"""

from __future__ import annotations

import resource


def disable() -> None:
    """Write no core dump of this process, and of those that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
