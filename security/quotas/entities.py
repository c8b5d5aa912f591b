"""Quota entities: the clients that a quota applies to, and the znode that has it.

An entity is a tuple of (type, name) pairs, the user before the client id; the name None means the default of its type:
`(("user", "alice"), ("client-id", None))` is the default of all client ids of alice. The same pairs are on the wire
(KIP-546). In the metadata tree the names are sanitized, and the default is the node `<default>`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.security.sanitizer import desanitize, sanitize

USER, CLIENT_ID, IP = TYPES = ("user", "client-id", "ip")
_FOLDERS = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
_FOLDER_TYPES = {folder: kind for kind, folder in _FOLDERS.items()}
_DEFAULT = "<default>"
_COMBINATIONS = ((USER,), (CLIENT_ID,), (USER, CLIENT_ID), (IP,))

Entity = tuple[tuple[str, str | None], ...]


def entity_of(pairs: Iterable[tuple[str, str | None]]) -> Entity:
    """The pairs in the order of TYPES, unknown types last; of a type that is given twice, the last pair."""
    names = dict(pairs)
    known = [kind for kind in TYPES if kind in names]
    return tuple((kind, names[kind]) for kind in [*known, *sorted(names.keys() - set(known))])


def path_of(entity: Entity) -> str:
    """The znode of an entity: `/config/users/alice/clients/c1`."""
    return "/config/" + "/".join(f"{_FOLDERS[kind]}/{_node(name)}" for kind, name in entity)


def change_of(entity: Entity) -> str:
    """The `entity_path` of the change notification under /config/changes: `users/alice/clients/c1`."""
    return path_of(entity).removeprefix("/config/")


def parse_path(path: str) -> Entity:
    """The entity of a znode, with or without `/config/` before it. ValueError when there is none."""
    parts = path.removeprefix("/config/").split("/")
    kinds = tuple(_FOLDER_TYPES.get(folder, "") for folder in parts[::2])
    if kinds not in _COMBINATIONS or len(parts) % 2:
        raise ValueError(f"{path!r} is not users/U, clients/C, users/U/clients/C or ips/A")
    return tuple((kind, _name(node)) for kind, node in zip(kinds, parts[1::2], strict=True))


def _node(name: str | None) -> str:
    return _DEFAULT if name is None else sanitize(name)


def _name(node: str) -> str | None:
    return None if node == _DEFAULT else desanitize(node)
