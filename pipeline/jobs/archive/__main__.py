"""For spark-submit, and `python -m odradek.pipeline.jobs.archive`."""

from odradek.pipeline.jobs.archive.command import archive as command
from odradek.pipeline.jobs.command import main

if __name__ == "__main__":
    main(command)
