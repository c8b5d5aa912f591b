"""`python -m odradek.inside.child FOLDER/server.properties PARENT LOCK`: the broker of an `inside.broker.Broker`.

It is `odradek start FOLDER/server.properties`, but it stops when the process PARENT has ended, and then removes FOLDER:
no other process is left to do it. LOCK is the descriptor of the folder's lock (inside.folders). The command line names
the properties file, so that `pgrep -f` finds it as any broker.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from odradek.broker.outcome import outcome
from odradek.broker.process import entry
from odradek.broker.supervisor import foreground

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig


def main(file: Path, parent: int) -> NoReturn:
    """Run the broker; exit with its code."""
    gc.disable()  # until all is loaded (supervisor.supervisor_forks): a tenth of the time of imports
    entry.load_on_demand()
    code = outcome(lambda: foreground.run(lambda: _config(file), parent))
    if os.getppid() != parent:
        import shutil

        shutil.rmtree(file.parent, ignore_errors=True)
    foreground.end(code)


def _config(file: Path) -> BrokerConfig:
    from odradek.broker import config

    return config.load(file)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[3]), False)
    main(Path(sys.argv[1]), int(sys.argv[2]))
