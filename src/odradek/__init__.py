"""Odradek, a Kafka-compatible message broker. Its packages are the top folders of the repository, linked here.

`Broker` runs one inside a program. Names are imported with their first use, as processes of a broker import this too.
"""

TYPE_CHECKING = False  # typing's costs an import
if TYPE_CHECKING:
    from odradek.inside.broker import Broker as Broker
    from odradek.inside.cluster import Cluster as Cluster
    from odradek.inside.faults import FaultError as FaultError
    from odradek.inside.kafka_container import KafkaContainer as KafkaContainer
    from odradek.inside.launched import BrokerError as BrokerError
else:
    _MODULES = {
        "Broker": "broker",
        "BrokerError": "launched",
        "Cluster": "cluster",
        "FaultError": "faults",
        "KafkaContainer": "kafka_container",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        if sys.platform != "linux":
            from odradek.inside.platforms import MISSING

            raise ImportError(f"{name} needs Linux: {MISSING}")
        return getattr(import_module(f"odradek.inside.{_MODULES[name]}"), name)


__all__ = ["Broker", "BrokerError", "Cluster", "FaultError", "KafkaContainer"]
