"""kafka-python's message classes without kafka-python's clients.

`import kafka.protocol` runs `kafka/__init__.py`, which imports the library's consumer, producer, admin client and TLS:
twice the modules and the time, in every process, without use for a broker. So this puts the package into `sys.modules`
without running it, until code accesses a name of the package itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any

MODULES = ("metadata", "consumer", "producer", "admin", "sasl")
_PACKAGE = "kafka"


@cache
def message_class(name: str) -> Any:
    """The class for a request or response, e.g. `HeartbeatRequest`: the library's, else ours."""
    for module in MODULES:
        found = getattr(_module(module), name, None)
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


@cache
def _module(name: str) -> ModuleType:
    if _PACKAGE not in sys.modules:
        sys.modules[_PACKAGE] = _unrun()
    return importlib.import_module(f"{_PACKAGE}.protocol.{name}")


def _unrun() -> ModuleType:
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None and spec.loader is not None
    loader, package = spec.loader, importlib.util.module_from_spec(spec)

    def run(name: str) -> Any:
        del package.__dict__["__getattr__"]
        loader.exec_module(package)
        return getattr(package, name)

    package.__dict__["__getattr__"] = run  # PEP 562: called for names that the module lacks, e.g. KafkaProducer
    return package
