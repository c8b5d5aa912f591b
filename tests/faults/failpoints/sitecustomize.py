"""Every Python process with this folder first in PYTHONPATH imports this; it installs failpoints if a file is named."""

import os
import sys

if os.environ.get("ODRADEK_FAILPOINTS"):
    _root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
    sys.path.insert(0, _root)
    from tests.faults.failpoints import wrapping

    sys.path.remove(_root)
    wrapping.install(os.environ["ODRADEK_FAILPOINTS"], sys.orig_argv)
