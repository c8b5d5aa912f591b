"""`odradek log-level`: changes the log levels of a running broker."""

from __future__ import annotations

from pathlib import Path

import click

from odradek.broker.commands._shared.broker import configured


@click.command(no_args_is_help=True)
@click.argument("module")
@click.argument("level")
@configured
def command(module: str, level: str, properties: Path | None, override: tuple[str, ...]) -> None:
    """Set the log LEVEL of MODULE in every process of a running broker, until the broker stops.

    MODULE is an Odradek module such as `workers.net.connection`, a package such as `storage`, or `root`.

    \b
    Example:
      odradek log-level workers.net.connection DEBUG
      odradek log-level root WARNING
    """
    from odradek.broker import logs
    from odradek.broker.commands._shared import broker
    from odradek.broker.process import control_bus

    try:
        logs.level_number(level)
    except logs.LevelError as error:
        raise click.BadParameter(str(error), param_hint="LEVEL") from None
    if not logs.exists(logs.logger_name(module)):
        raise click.BadParameter(f"no module {module}; name one as in the log, a package or root", param_hint="MODULE")
    config = broker.find_running(properties, override)
    control_bus.request(config.run_dir, "supervisor", "log-level", module=module, level=level)
    click.echo(f"{logs.logger_name(module)}: {level.upper()}")
