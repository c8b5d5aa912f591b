"""kafka-python's message classes without kafka-python's clients, each made when it is needed.

`import kafka.protocol` runs `kafka/__init__.py`, which imports the library's consumer, producer, admin client and TLS:
twice the modules and the time, in every process, without use for a broker. `import kafka.protocol.admin` makes the
classes of all requests of that kind from their schemas. So this puts such packages into `sys.modules` without running
them, until code accesses a name of the package itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any

PACKAGES = ("metadata", "consumer", "producer", "admin")  # below kafka.protocol
_ROOT = "kafka"
# The APIs of each module below kafka.protocol. One that is not here is looked for in all of them.
MODULES = {
    "metadata.api_versions": "ApiVersions",
    "metadata.find_coordinator": "FindCoordinator",
    "metadata.metadata": "Metadata",
    "consumer.fetch": "Fetch",
    "consumer.group": "Heartbeat JoinGroup LeaveGroup OffsetCommit OffsetDelete OffsetFetch SyncGroup",
    "consumer.offsets": "ListOffsets OffsetForLeaderEpoch",
    "producer.produce": "Produce",
    "producer.transaction": "AddOffsetsToTxn AddPartitionsToTxn EndTxn InitProducerId TxnOffsetCommit WriteTxnMarkers",
    "admin.acl": "CreateAcls DeleteAcls DescribeAcls",
    "admin.client_quotas": "AlterClientQuotas DescribeClientQuotas",
    "admin.cluster": "AlterReplicaLogDirs DescribeCluster DescribeLogDirs DescribeQuorum UpdateFeatures",
    "admin.configs": "AlterConfigs DescribeConfigs IncrementalAlterConfigs ListConfigResources",
    "admin.groups": "DeleteGroups DescribeGroups ListGroups",
    "admin.topics": (
        "AlterPartitionReassignments CreatePartitions CreateTopics DeleteRecords DeleteTopics DescribeTopicPartitions "
        "ElectLeaders ListPartitionReassignments"
    ),
    "admin.transactions": "DescribeProducers DescribeTransactions ListTransactions",
    "admin.users": "AlterUserScramCredentials DescribeUserScramCredentials",
    "sasl": "SaslAuthenticate SaslBytes SaslHandshake",
}
_MODULE_OF = {api: module for module, apis in MODULES.items() for api in apis.split()}


@cache
def message_class(name: str) -> Any:
    """The class for a request or response, e.g. `HeartbeatRequest`: the library's, else ours."""
    found = _found(name)
    if found is not None:
        return found
    own = importlib.import_module("odradek.protocol.delegation_tokens").message_class(name)  # it builds on this module
    if own is None:
        raise LookupError(f"kafka.protocol has no {name}")
    return own


def load_all() -> None:
    """Import every message class, before a client has to wait for one."""
    for module in MODULES:
        _module(module)


def _found(name: str) -> Any:
    """The library's class of that name; None when it has none."""
    module = _MODULE_OF.get(name.removesuffix("Request").removesuffix("Response"))
    likely = () if module is None else (module,)
    return next((kind for one in (*likely, *MODULES) if (kind := getattr(_module(one), name, None)) is not None), None)


@cache
def _module(name: str) -> ModuleType:
    _enter()
    return importlib.import_module(f"{_ROOT}.protocol.{name}")


@cache
def _enter() -> None:
    """Put the packages into `sys.modules`, unless they are there."""
    if _ROOT not in sys.modules:
        sys.modules[_ROOT] = _unrun(_ROOT)
    protocol = importlib.import_module(f"{_ROOT}.protocol")
    for package in PACKAGES:
        name = f"{_ROOT}.protocol.{package}"
        if name not in sys.modules:
            sys.modules[name] = _unrun(name)
            setattr(protocol, package, sys.modules[name])


def _unrun(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    loader, package = spec.loader, importlib.util.module_from_spec(spec)

    def run(wanted: str) -> Any:
        package.__dict__.pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, wanted)

    package.__dict__["__getattr__"] = run  # PEP 562: called for names that the module lacks, e.g. KafkaProducer
    return package
