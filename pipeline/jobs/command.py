"""Parts that the jobs' command lines share: options for the cluster and for Spark, start and end of a job.

Exit codes: 0 done, 1 failed or found something wrong, 2 wrong usage, 130 and 143 ended by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.pipeline.errors import OptionError
from odradek.pipeline.jobs import ending
from odradek.protocol import properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J2 = Path(__file__).with_name("log4j2.properties")

Function = Callable[..., Any]


def cluster_options(function: Function) -> Function:
    """`--bootstrap-server`, `--command-config` and `--property`: passed on as `kafka`, for `.options(**kafka)`."""

    @click.option("--bootstrap-server", required=True, metavar="HOST:PORT,…", help="The brokers to connect to first.")
    @click.option("--command-config", metavar="FILE", help="Properties file with client configurations.")
    @click.option(
        "--property",
        "properties_given",
        multiple=True,
        metavar="KEY=VALUE",
        help="A client configuration; may be repeated.",
    )
    @functools.wraps(function)
    def with_cluster(
        *args: Any, bootstrap_server: str, command_config: str | None, properties_given: tuple[str, ...], **rest: Any
    ) -> Any:
        client = (
            _file(command_config) | _pairs("--property", properties_given) | {"bootstrap.servers": bootstrap_server}
        )
        return function(*args, kafka={f"kafka.{key}": value for key, value in client.items()}, **rest)

    return with_cluster


def spark_options(function: Function) -> Function:
    """`--master` and `--conf`: passed on as `conf`, for `start`."""

    @click.option("--master", metavar="URL", help="Spark master: local[2], spark://HOST:7077, yarn, k8s://…")
    @click.option("--conf", "conf_given", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
    @functools.wraps(function)
    def with_spark(*args: Any, master: str | None, conf_given: tuple[str, ...], **rest: Any) -> Any:
        conf = _pairs("--conf", conf_given) | ({"spark.master": master} if master else {})
        return function(*args, conf=conf, **rest)

    return with_spark


def _file(path: str | None) -> dict[str, str]:
    try:
        return properties.load(Path(path)) if path else {}
    except (OSError, properties.PropertiesError) as error:
        raise OptionError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _pairs(option: str, pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{option}: '{pair}' is not of the form KEY=VALUE")
        found[key.strip()] = value
    return found


def start(name: str, conf: dict[str, str]) -> SparkSession:
    """The session of job `name`; on this machine alone, unless `conf` or the environment names a master.

    Spark's UI is then local, too: it listens on SPARK_LOCAL_IP, which is 127.0.0.1 for a local master.
    """
    from odradek.pipeline.session import logging_as, session

    if _master(conf).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    made = session(name, **logging_as(_LOG4J2, conf))
    _one_line_errors()
    ending.started()
    return made


def _one_line_errors() -> None:
    """PySpark prints errors in a query as JSON with Java's stack traces; the job prints one line instead."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _master(conf: dict[str, str]) -> str:
    """The master that Spark will use; Spark's own configuration files, which an administrator writes, are not read."""
    elsewhere = "SPARK_CONF_DIR" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    return conf.get("spark.master") or os.environ.get("MASTER") or ("" if elsewhere else "local[*]")


def main(command: click.Command) -> None:
    """Run a job's command, or a group of them, with this process's arguments, and exit."""
    name = "odradek pipeline" if isinstance(command, click.Group) else f"odradek pipeline {command.name}"
    sys.exit(ending.run(command, name, sys.argv[1:]))
