"""What PySpark's workers do between two tasks, made cheap: 0.12 s of CPU each, what 100 MB of records take to read.

Before a task `pyspark.worker` calls importlib.invalidate_caches. Until Python 3.12 each finder for a zip file reads its
directory again then, and every package in pyspark.zip has such a finder (python/cpython#103200). After a task
`pyspark.daemon` calls gc.collect, which walks all that was ever imported.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter


def spare() -> None:
    """To be called in each task. Imports go on as before: a finder that is missing is made anew, without reading."""
    _freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


@cache
def _freeze() -> None:
    """Once in a process, when its modules are imported: they are no garbage, and are not looked at again."""
    gc.freeze()
