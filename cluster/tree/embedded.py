"""The metadata tree in one SQLite file, for a single-broker cluster.

Layout    : `odradek-metadata.db` (mode 0600) and its `-wal`; tables `nodes` (one row per node) and `counters`
            (last zxid, last session). PRAGMA application_id names the format, user_version its version.
Owner     : the controller process, which opens the file after it holds its role byte.
Writers   : that process only; SQLite's exclusive lock keeps others out.
Lock      : SQLite's own, held for the life of the process; the kernel frees it when the process ends.
Crash rule: each `multi` is one transaction with synchronous=FULL: a crash leaves all of it or nothing.
            Until a `together` block ends, a crash may lose its transactions; no other process knows of them yet.
Upgrades  : the steps in `_UPGRADES` upgrade a file of an older version; a file of a newer version is refused.
Ephemeral nodes belong to the process that created them: the next process to open the file deletes them.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from odradek.cluster.tree.tree import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    Tree,
    TreeUnavailable,
    check_path,
    parent,
)

FILE_NAME = "odradek-metadata.db"
APPLICATION_ID = 0x4F44524B  # "ODRK"
VERSION = 1

_SCHEMA = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, ctime INTEGER NOT NULL, mtime INTEGER NOT NULL,
    version INTEGER NOT NULL, cversion INTEGER NOT NULL, owner INTEGER NOT NULL, pzxid INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX nodes_by_parent ON nodes (parent);
CREATE INDEX nodes_by_owner ON nodes (owner) WHERE owner != 0;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('zxid', 0), ('session', 0);
INSERT INTO nodes VALUES ('/', '', x'', 0, 0, 0, 0, 0, 0, 0, 0);
"""
_UPGRADES: dict[int, str] = {}  # version -> the statements that upgrade it to the next

_STAT = (
    "czxid, mzxid, ctime, mtime, version, cversion, owner, length(data), "
    "(SELECT count(*) FROM nodes AS c WHERE c.parent = nodes.path), pzxid"
)


class StoreError(Exception):
    """The file cannot be used; the message says what to do."""


def peek(path: str | os.PathLike[str], node: str) -> bytes | None:
    """A node's data in a file that no process has open; None when the file or node is missing or unreadable."""
    if not os.path.exists(path):
        return None
    try:
        with closing(sqlite3.connect(path, timeout=0)) as db:
            row = db.execute("SELECT data FROM nodes WHERE path = ?", (node,)).fetchone()
    except sqlite3.Error:
        return None  # opening the tree reports why
    return row[0] if row else None


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


class EmbeddedTree(Tree):
    """The tree in `path`, opened for this process alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._watched: dict[tuple[str, bool], None] = {}  # (path, children?) -> armed
        self._events: list[Event] = []
        self._fired: list[tuple[str, str]] = []
        self._db = self._open()
        self._zxid = self._counter("zxid")
        self._session = self._counter("session") + 1
        self._begin_session()

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            self._stamp(db)
        except sqlite3.OperationalError as error:
            db.close()
            busy = ": is another broker running on this directory?" if _is_busy(error) else ""
            raise StoreError(f"{self._path}: {error}{busy}") from error
        except sqlite3.DatabaseError as error:
            db.close()
            raise StoreError(f"{self._path}: {error}: restore it from a backup, or move it away") from error
        except StoreError:
            db.close()
            raise
        return db

    def _stamp(self, db: sqlite3.Connection) -> None:
        """Create a new file's tables, or upgrade an older file to VERSION."""
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if application not in (0, APPLICATION_ID) or (application == 0 and version):
            raise StoreError(f"{self._path}: not a metadata file of this broker: move it away")
        if version > VERSION:
            raise StoreError(
                f"{self._path}: written by a newer Odradek (format {version}, this version supports {VERSION}): start "
                "the newer version"
            )
        scripts = [_UPGRADES[step] for step in range(version, VERSION)] if application else [_SCHEMA]
        if scripts and (version < VERSION or not application):
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
            db.executescript("BEGIN IMMEDIATE;" + "".join(scripts) + marks + "COMMIT;")

    def _counter(self, name: str) -> int:
        value: int = self._db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()[0]
        return value

    def _begin_session(self) -> None:
        rows = self._db.execute("SELECT path FROM nodes WHERE owner != 0 ORDER BY path DESC").fetchall()
        with self._transaction():
            self._db.execute("UPDATE counters SET value = ? WHERE name = 'session'", (self._session,))
            for (path,) in rows:
                self._delete(Delete(path))
        self._fired.clear()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction with its own zxid; an exception inside rolls it back."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise TreeUnavailable(f"{self._path}: {error}") from error
        self._zxid += 1
        try:
            yield
            self._db.execute("UPDATE counters SET value = ? WHERE name = 'zxid'", (self._zxid,))
            self._db.execute("COMMIT")
        except BaseException as error:
            self._zxid -= 1
            self._fired.clear()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise TreeUnavailable(f"{self._path}: {error}") from error
            raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """Sync all writes of the block with one fsync at its end, so that a start does not wait for each of its
        changes. Raises TreeUnavailable when that fails."""
        self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            pass  # its commit syncs the whole log

    @property
    def session(self) -> int:
        return self._session

    def multi(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """See Tree.multi; TreeUnavailable when the file cannot be written (a full disk)."""
        with self._transaction():
            results = [self._do(operation) for operation in operations]
        self._deliver()
        return results

    def _do(self, operation: Operation) -> str | Stat | None:
        check_path(operation.path)
        if isinstance(operation, Create):
            return self._create(operation)
        if isinstance(operation, Set):
            return self._set(operation)
        if isinstance(operation, Delete):
            self._delete(operation)
        else:
            self._expect(operation)
        return None

    def _create(self, operation: Create) -> str:
        above = parent(operation.path)
        row = self._db.execute("SELECT owner FROM nodes WHERE path = ?", (above,)).fetchone()
        if row is None:
            raise NoNode(above)
        if row[0]:
            raise NoChildrenForEphemerals(above)
        path = f"{operation.path}{self._created(above):010d}" if operation.sequence else operation.path
        owner = self._session if operation.ephemeral else 0
        now, zxid = time.time_ns() // 1_000_000, self._zxid
        try:
            self._db.execute(
                "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?)",
                (path, above, operation.data, zxid, zxid, now, now, owner, zxid),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        self._children_changed(above)
        self._fired += [(CREATED, path), (CHILDREN, above)]
        return path

    def _created(self, path: str) -> int:
        """Children created so far: cversion also counts deletions. Scans all existing children."""
        stat = self._stat(path)
        assert stat is not None
        return (stat.cversion + stat.children) // 2

    def _children_changed(self, path: str) -> None:
        self._db.execute("UPDATE nodes SET cversion = cversion + 1, pzxid = ? WHERE path = ?", (self._zxid, path))

    def _set(self, operation: Set) -> Stat:
        self._expect(operation)
        now = time.time_ns() // 1_000_000
        self._db.execute(
            "UPDATE nodes SET data = ?, version = version + 1, mzxid = ?, mtime = ? WHERE path = ?",
            (operation.data, self._zxid, now, operation.path),
        )
        self._fired.append((CHANGED, operation.path))
        stat = self._stat(operation.path)
        assert stat is not None
        return stat

    def _delete(self, operation: Delete) -> None:
        self._expect(operation)
        path = operation.path
        if path == "/":
            raise NotEmpty("/")
        if self._db.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._db.execute("DELETE FROM nodes WHERE path = ?", (path,))
        self._children_changed(parent(path))
        self._fired += [(DELETED, path), (CHILDREN, parent(path))]

    def _expect(self, operation: Set | Delete | Check) -> None:
        row = self._db.execute("SELECT version FROM nodes WHERE path = ?", (operation.path,)).fetchone()
        if row is None:
            raise NoNode(operation.path)
        if operation.version not in (ANY_VERSION, row[0]):
            raise BadVersion(operation.path)

    def _deliver(self) -> None:
        """Queue an event for each watch that the committed transaction fires."""
        for kind, path in self._fired:
            hit = [key for key in _watches(kind, path) if key in self._watched]
            for key in hit:
                del self._watched[key]
            if hit:
                self._events.append(Event(kind, path))
        self._fired.clear()

    def _stat(self, path: str) -> Stat | None:
        row = self._db.execute(f"SELECT {_STAT} FROM nodes WHERE path = ?", (path,)).fetchone()
        return Stat(*row) if row else None

    def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        check_path(path)
        row = self._db.execute(f"SELECT data, {_STAT} FROM nodes WHERE path = ?", (path,)).fetchone()
        if row is None:
            raise NoNode(path)
        if watch:
            self._watched[path, False] = None
        return row[0], Stat(*row[1:])

    def exists(self, path: str, watch: bool = False) -> Stat | None:
        check_path(path)
        if watch:
            self._watched[path, False] = None
        return self._stat(path)

    def children(self, path: str, watch: bool = False) -> list[str]:
        check_path(path)
        rows = self._db.execute("SELECT path FROM nodes WHERE parent = ? ORDER BY path", (path,)).fetchall()
        if not rows and self._stat(path) is None:
            raise NoNode(path)
        if watch:
            self._watched[path, True] = None
        return [row[0].rpartition("/")[2] for row in rows]

    def poll(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        try:
            self._begin_session()
        finally:
            self._db.close()


def _watches(kind: str, path: str) -> tuple[tuple[str, bool], ...]:
    """The watches that a change fires; a deletion also fires those on the node's children."""
    if kind == CHILDREN:
        return ((path, True),)
    if kind == DELETED:
        return ((path, False), (path, True))
    return ((path, False),)
