"""The exporter process: reads shared memory, serves metrics by HTTP."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for numpy, which its modules import: its threads would only spin
