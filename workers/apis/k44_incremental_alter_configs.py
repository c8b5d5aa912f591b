"""IncrementalAlterConfigs (key 44), versions 0 and 1: set, delete, append to or subtract from configs (KIP-339).

Serves topics, this broker, and (with an empty broker name) the cluster-wide defaults. Changes are in force when it is
answered. Log levels (broker logger, KIP-412) are those of this broker, and last until it stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.decisions.alter import ConfigChange
from odradek.workers.dispatch import config_changes
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.config_changes import Resource
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    return config_changes.handle(controller, "IncrementalAlterConfigsResponse", request, _resource, context)


def _resource(resource: Any) -> Resource:
    changes = [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs]
    return Resource(resource.resource_type, resource.resource_name, changes, replace=False)


API = Api(key=44, name="IncrementalAlterConfigs", versions=(0, 1), runs_in=CONTROLLER, handle=handle)
