"""AlterConfigs (key 33), versions 0 to 2: replaces all overrides of a resource by those given (KIP-133).

Kept for old clients and tools; IncrementalAlterConfigs replaces it. Changes are in force when it is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.decisions.alter import SET, ConfigChange
from odradek.workers.dispatch import config_changes
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.config_changes import Resource
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    return config_changes.handle(controller, "AlterConfigsResponse", request, _resource, context)


def _resource(resource: Any) -> Resource:
    changes = [ConfigChange(config.name, SET, config.value) for config in resource.configs]
    return Resource(resource.resource_type, resource.resource_name, changes, replace=True)


API = Api(key=33, name="AlterConfigs", versions=(0, 2), runs_in=CONTROLLER, handle=handle)
