"""For spark-submit, and `python -m odradek.pipeline.jobs.stages`."""

from __future__ import annotations

from odradek.pipeline.jobs.command import main
from odradek.pipeline.jobs.stages.command import command

if __name__ == "__main__":
    main(command)
