"""Makes what PySpark's workers do between tasks cheap: 0.12 s of CPU each, as much as reading 100 MB of records.

Before a task `pyspark.worker` calls importlib.invalidate_caches. Until Python 3.12 each finder for a zip file then
reads its directory again, and every package in pyspark.zip has such a finder (python/cpython#103200). After a task
`pyspark.daemon` calls gc.collect, which walks every imported object.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter


def spare() -> None:
    """Call this in each task. Imports still work: Python recreates a missing finder without reading the directory."""
    _freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


@cache
def _freeze() -> None:
    """Once in a process, after its imports: the modules' objects are no garbage, so the collector skips them."""
    gc.freeze()
