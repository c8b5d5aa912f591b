"""`odradek run-class`: classes of Kafka and the commands in their place."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from odradek.broker.cli import odradek
from odradek.broker.commands.run_class import COMMANDS
from odradek.broker.errors import OdradekError


def run(*words: str) -> str:
    done = CliRunner().invoke(odradek, ["run-class", *words], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout


def test_commands_exist() -> None:
    assert set(COMMANDS.values()) <= set(odradek.list_commands(click.Context(odradek)))


@pytest.mark.parametrize("name", ["kafka.admin.TopicCommand", "org.apache.kafka.tools.TopicCommand"])
def test_a_class_of_any_version(name: str) -> None:
    assert run(name, "--help").startswith("Usage: odradek topics [OPTIONS]")
    assert run("-name", "topics", "-loggc", name, "--help").startswith("Usage: odradek topics")


def test_options_belong_to_the_class() -> None:
    with pytest.raises(click.NoSuchOption, match="--nonsense"):
        run("kafka.admin.TopicCommand", "--nonsense")


@pytest.mark.parametrize("name", ["kafka.tools.MirrorMaker", "com.example.TopicCommand", "TopicCommand"])
def test_unknown_class(name: str) -> None:
    with pytest.raises(OdradekError, match=f"no command does what {name} does"):
        run(name)
