"""The vocabularies of `/metrics`: which names the same values have.

`odradek` is ours. `jmx`: the names that Strimzi and the JMX exporter make of Apache Kafka's MBeans. `kafka_exporter`:
those of the program of that name. So that dashboards for these show data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.exporter import jmx_names, kafka_exporter_names, odradek_names
from odradek.broker.exporter.scrape import Sample
from odradek.broker.exporter.text import Metrics

DEFAULT = "odradek"
VOCABULARIES: Mapping[str, Callable[[Sample], Metrics]] = {
    DEFAULT: odradek_names.metrics,
    "jmx": jmx_names.metrics,
    "kafka_exporter": kafka_exporter_names.metrics,
}
