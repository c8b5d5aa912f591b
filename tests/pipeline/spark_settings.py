"""The tests' Spark session: its settings, those for the duration of a block, and its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LOCAL = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@contextmanager
def spark_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set them and restore the former values afterwards; code in the block may change them as well."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        _restore(spark, before)


@contextmanager
def all_settings(spark: SparkSession) -> Iterator[None]:
    """Restore all settings to their current values.

    `getAll` also lists settings of the start, which a second `getOrCreate` seems to change: they have no effect, and
    Spark refuses to set them.
    """
    before = spark.conf.getAll
    yield
    after = spark.conf.getAll
    changed = {name: before.get(name) for name in after.keys() | before if after.get(name) != before.get(name)}
    _restore(spark, {name: was for name, was in changed.items() if spark.conf.isModifiable(name)})


def _restore(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, was in settings.items():
        spark.conf.unset(name) if was is None else spark.conf.set(name, was)


def end_java() -> None:
    """End the Java of this process, which writes its archive of classes then, if it was told to."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    assert gateway.proc.wait(300) == 0
    SparkContext._gateway = SparkContext._jvm = None
