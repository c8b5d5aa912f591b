"""For spark-submit, and `python -m odradek.pipeline.jobs.restore`."""

from odradek.pipeline.jobs.command import main
from odradek.pipeline.jobs.restore.restore import command

if __name__ == "__main__":
    main(command)
