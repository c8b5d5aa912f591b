"""Where passwords come from, and what is made of them at once: no password leaves this process."""

from __future__ import annotations

import sys

import click

from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_admin import Upsertion
from odradek.security.sasl.scram_keys import ScramMechanism, new_salt
from odradek.security.sasl.scram_keys import salted as salted_password


def prompted(name: str) -> Password:
    """From the terminal, typed twice."""
    if not sys.stdin.isatty():
        raise click.UsageError("stdin is not a terminal: give --password-stdin to read the password from it")
    return _checked(click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True))


def from_stdin() -> Password:
    """The first line of stdin."""
    return _checked(sys.stdin.readline().removesuffix("\n").removesuffix("\r"))


def _checked(text: str) -> Password:
    if not text:
        raise click.UsageError("the password must not be empty")
    return Password(text)


def salted(name: str, mechanism: str, password: Password, iterations: int) -> Upsertion:
    """What KIP-554 sends of a password."""
    kind, salt = ScramMechanism(mechanism), new_salt()
    return Upsertion(name, kind.type, iterations, salt, salted_password(kind, password, salt, iterations))
