"""`odradek pipeline`, the same as `python -m odradek.pipeline`: imports a job's module only when the job runs."""

from __future__ import annotations

import importlib

import click

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.command import main

_JOBS = {
    "archive": ("archive.__main__", "Archive topics to Parquet files by topic and hour, each record exactly once."),
    "audit": ("audit.__main__", "Count records in every tier, by topic and time; report missing ones."),
    "restore": ("restore.__main__", "Restore an archive to topics."),
    "stages": ("stages.__main__", "Run streams from topics to topics that a TOML file declares."),
}


class Jobs(click.Group):
    """The group of jobs; each job's module defines `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _JOBS:
            return None
        try:
            module = importlib.import_module(f"odradek.pipeline.jobs.{_JOBS[cmd_name][0]}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("odradek"):
                raise
            raise PipelineError(f"{error.name} is not installed: pip install 'odradek[spark]'") from error
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl([(name, text) for name, (_, text) in _JOBS.items()])


@click.group(cls=Jobs, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
def pipeline() -> None:
    """Run a job on Spark, on this machine or on the cluster of --master.

    \b
    Example:
      odradek pipeline archive --bootstrap-server localhost:9092 --topics orders --to file:/srv/archive
    """


if __name__ == "__main__":
    main(pipeline)
