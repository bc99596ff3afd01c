"""Results in an SQLite file: a row per cell, written when the cell ends, never twice.

Several processes may use one file at a time. A cell is claimed before it is run, so that two runs
of the same benchmark share the work instead of doing it twice; a claim ends with its process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any

from varprop.errors import InputError

#: Marks the file as ours (SQLite's application_id) and the layout of its tables (user_version).
APPLICATION_ID = 0x56505242
LAYOUT = 1
#: A claim of another machine, whose processes cannot be looked up, ends after this many seconds.
CLAIM_SECONDS = 6 * 3600.0

_TABLES = """
CREATE TABLE results (
    dataset TEXT NOT NULL, method TEXT NOT NULL, protocol TEXT NOT NULL, split INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    nll REAL, rmse REAL, nll_standardized REAL, rmse_standardized REAL, crps REAL,
    coverage50 REAL, coverage90 REAL, nll_independent REAL,
    outcome TEXT NOT NULL, epochs INTEGER, steps INTEGER, loss REAL, seconds REAL NOT NULL,
    n_train INTEGER NOT NULL, n_test INTEGER NOT NULL, source TEXT NOT NULL,
    settings TEXT NOT NULL, settings_digest TEXT NOT NULL, version TEXT NOT NULL,
    finished TEXT NOT NULL,
    PRIMARY KEY (dataset, method, protocol, split, seed, settings_digest, version)
);
CREATE TABLE claims (
    cell TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, since REAL NOT NULL
);
"""


class StoreError(InputError):
    """The file cannot be used as a store; the message says why and what to do."""


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """One training on one split: what is run, and the key of its row.

    Examples
    --------
    >>> Cell("boston", "gp", "own", 0, 0, '{"n_restarts": 3}', "0.1").digest[:8]
    '1f176e41'
    """

    dataset: str
    method: str
    protocol: str
    split: int
    seed: int
    settings: str
    version: str

    @property
    def digest(self) -> str:
        """Short digest of the settings."""
        return hashlib.sha256(self.settings.encode()).hexdigest()[:16]

    @property
    def key(self) -> str:
        """What tells this cell from all others."""
        parts = (self.dataset, self.method, self.protocol, self.split, self.seed, self.digest)
        return "/".join(map(str, (*parts, self.version)))


class Store:
    """An open file of results.

    Parameters
    ----------
    path
        The file; made if it does not exist.
    create
        Whether a file that does not exist is made, or an error.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder + "/results.sqlite")
    ...     print(store.rows())
    ...     store.close()
    []
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True):
        self.path = pathlib.Path(path)
        if not self.path.parent.is_dir():
            raise StoreError(f"there is no folder {self.path.parent}: make it first.")
        if not create and not self.path.exists():
            raise StoreError(f"there is no store {self.path}: run `varprop bench` first.")
        with self._explained():
            self._db = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
            self._db.row_factory = sqlite3.Row
        self._open()

    def _open(self) -> None:
        # Two processes may find the file empty at once: whoever gets the lock makes the tables.
        with self._transaction():
            mark = self._db.execute("PRAGMA application_id").fetchone()[0]
            layout = self._db.execute("PRAGMA user_version").fetchone()[0]
            empty = not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if empty and not mark:
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {LAYOUT}")
            elif mark != APPLICATION_ID:
                raise StoreError(f"{self.path} is a database, but not of varprop: name another.")
            elif layout != LAYOUT:
                raise StoreError(
                    f"{self.path} was written by another version of varprop (layout {layout}, this "
                    f"one has {LAYOUT}): name another file, or use that version."
                )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Do all of it or nothing, while nobody else writes."""
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back itself
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's errors into sentences."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            reason = str(error)
            sentence = f"{self.path}: {reason}."
            if "not a database" in reason or "malformed" in reason:
                sentence = (
                    f"{self.path} is not a store or is damaged: name another file by --store."
                )
            elif "full" in reason:
                sentence = (
                    f"the disk is full: {self.path} keeps all cells finished so far; make room and "
                    "run the same command again."
                )
            elif "unable to open" in reason or "readonly" in reason:
                sentence = f"{self.path} cannot be written: check the folder."
            raise StoreError(sentence) from error

    def close(self) -> None:
        """Close the file and give back the claims of this process."""
        with contextlib.suppress(sqlite3.Error):
            self._db.execute(
                "DELETE FROM claims WHERE host = ? AND pid = ?", (socket.gethostname(), os.getpid())
            )
        self._db.close()

    def has(self, cell: Cell) -> bool:
        """Whether the cell's result is there."""
        with self._explained():
            found = self._db.execute(
                "SELECT 1 FROM results WHERE dataset = ? AND method = ? AND protocol = ? AND "
                "split = ? AND seed = ? AND settings_digest = ? AND version = ?",
                (*dataclasses.astuple(cell)[:5], cell.digest, cell.version),
            ).fetchone()
        return found is not None

    def claim(self, cell: Cell) -> bool:
        """Reserve a cell for this process; False if it is finished or another one is at it."""
        with self._transaction():
            taken = self._db.execute(
                "SELECT host, pid, since FROM claims WHERE cell = ?", (cell.key,)
            ).fetchone()
            free = not self.has(cell) and (taken is None or not _alive(*taken))
            if free:
                self._db.execute(
                    "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)",
                    (cell.key, socket.gethostname(), os.getpid(), time.time()),
                )
        return free

    def release(self, cell: Cell) -> None:
        """Give back a claim without a result."""
        with self._explained():
            self._db.execute("DELETE FROM claims WHERE cell = ?", (cell.key,))

    def write(self, cell: Cell, values: dict[str, Any]) -> None:
        """Write a finished cell, all of it or nothing, and end its claim."""
        row = {
            **dataclasses.asdict(cell),
            "settings_digest": cell.digest,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **values,
        }
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        with self._transaction():
            self._db.execute(
                f"INSERT OR IGNORE INTO results ({names}) VALUES ({marks})", list(row.values())
            )
            self._db.execute("DELETE FROM claims WHERE cell = ?", (cell.key,))

    def rows(self) -> list[dict[str, Any]]:
        """Return all results, the oldest first."""
        with self._explained():
            found = self._db.execute("SELECT * FROM results ORDER BY finished, rowid").fetchall()
        return [dict(row) for row in found]

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that have no result yet, in their order."""
        return [cell for cell in cells if not self.has(cell)]


def _alive(host: str, pid: int, since: float) -> bool:
    """Whether the process that made a claim may still be at it."""
    if host != socket.gethostname():
        return time.time() - since < CLAIM_SECONDS
    if pid == os.getpid():
        return False  # our own earlier claim: nobody else can be at it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def canonical(settings: dict[str, Any]) -> str:
    """Return settings as JSON that is the same for the same settings.

    Examples
    --------
    >>> canonical({"b": 1, "a": [2.0]})
    '{"a": [2.0], "b": 1}'
    """
    return json.dumps(settings, sort_keys=True)
