"""The role numbers of a broker's processes.

A role's number is its byte in the role lock file, its row in the process table and its byte in each
partition's waiter row. Every role exists at most once; workers take the numbers from `FIRST_WORKER` on.
"""

SUPERVISOR = 0
ACCEPTOR = 1
COORDINATOR = 2
REPLICATOR = 3
CONTROLLER = 4
JANITOR = 5
EXPORTER = 6
FIRST_WORKER = 8
MAX_WORKERS = 64
ROLES = FIRST_WORKER + MAX_WORKERS

_NAMES = {
    SUPERVISOR: "supervisor",
    ACCEPTOR: "acceptor",
    COORDINATOR: "coordinator",
    REPLICATOR: "replicator",
    CONTROLLER: "controller",
    JANITOR: "janitor",
    EXPORTER: "exporter",
}
BY_NAME = {name: role for role, name in _NAMES.items()}


def worker_role(worker_id: int) -> int:
    """The role number of worker `worker_id`; ValueError outside 0..63."""
    if not 0 <= worker_id < MAX_WORKERS:
        raise ValueError(f"worker id {worker_id}: must be between 0 and {MAX_WORKERS - 1}")
    return FIRST_WORKER + worker_id


def role_name(role: int) -> str:
    """`worker-3`, `janitor`, …: the name in logs, in `odradek status` and in socket names."""
    if role >= FIRST_WORKER:
        return f"worker-{role - FIRST_WORKER}"
    return _NAMES.get(role, f"role-{role}")
