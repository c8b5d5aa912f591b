"""`odradek completion`: has a shell complete commands and options."""

from __future__ import annotations

import click

VARIABLE = "_ODRADEK_COMPLETE"  # click's own name: the script calls `odradek` with it


@click.command(no_args_is_help=True)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a script with which SHELL completes commands, options and their values.

    \b
    Example:
      eval "$(odradek completion bash)"                       in ~/.bashrc
      eval "$(odradek completion zsh)"                        in ~/.zshrc
      odradek completion fish > ~/.config/fish/completions/odradek.fish
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # click has one for each of these shells
    click.echo(script(context.find_root().command, {}, "odradek", VARIABLE).source())
