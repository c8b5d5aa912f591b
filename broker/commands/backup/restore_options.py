"""The options of `odradek backup restore`, also for its --help: imports nothing that takes time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

KINDS = ("topics", "brokers", "quotas", "users", "groups", "acls")  # in the order of the restore


class Recreated(Enum):
    """What to do about topics that are not those of the backup (`--recreated-topics`)."""

    REFUSE = "refuse"
    TIME = "time"
    EXACT = "exact"


@dataclass(frozen=True)
class RestoreOptions:
    """What the options of the command say; `factor` is None for the backup's replication factors."""

    only: Collection[str] = KINDS
    overwrite: bool = False
    dry_run: bool = False
    factor: int | None = None
    recreated: Recreated = Recreated.REFUSE
