"""`odradek run-class`: Kafka's classes and the commands that replace them."""

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


def test_command_of_each_class_exists() -> None:
    assert set(COMMANDS.values()) <= set(odradek.list_commands(click.Context(odradek)))


@pytest.mark.parametrize("name", ["kafka.admin.TopicCommand", "org.apache.kafka.tools.TopicCommand"])
def test_class_of_any_kafka_version_runs_the_command(name: str) -> None:
    assert run(name, "--help").startswith("Usage: odradek topics [OPTIONS]")
    assert run("-name", "topics", "-loggc", name, "--help").startswith("Usage: odradek topics")


def test_options_are_passed_to_the_command() -> None:
    with pytest.raises(click.NoSuchOption, match="--nonsense"):
        run("kafka.admin.TopicCommand", "--nonsense")


@pytest.mark.parametrize("name", ["kafka.tools.MirrorMaker", "com.example.TopicCommand", "TopicCommand"])
def test_unknown_class_is_an_error(name: str) -> None:
    with pytest.raises(OdradekError, match=f"no command does what {name} does"):
        run(name)
