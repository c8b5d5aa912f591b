"""Every Python process with this folder first in PYTHONPATH imports this, and changes the code as the file says."""

import os

_path = os.environ.get("ODRADEK_TEST_INSTALLED", "")
if os.path.exists(_path):
    with open(_path) as _file:
        exec(compile(_file.read(), _path, "exec"))
