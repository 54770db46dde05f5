"""Real PostgreSQL servers."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.support.servers import process
from tests.support.servers.database import Database, DatabaseServer, empty_folder, run
from tests.support.waiting import PATIENCE, until

# No flush to disk, no process that cleans up, and as little memory as is enough. Commits reach the kernel: a crash of
# the server loses none of them.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",  # in its folder, which goes; the default would be left over after a crash
    "shared_buffers": "16MB",
    "log_checkpoints": "off",
}
# Further options of a server that sends its log to a standby. What is cut off for a while finds the log still there.
REPLICATED = ("-cwal_level=replica", "-cmax_wal_senders=10", "-cwal_keep_size=64MB")
# Its pipe ends with us. Then it takes away what a dead server leaves to the kernel, a piece of shared memory, and ends
# processes that are frozen and cannot see that their parent is gone.
REAPER = 'read -r _; ipcrm -m "$1"; shift; [ $# = 0 ] || kill -KILL "$@"'


class PostgresServer(DatabaseServer):
    """A PostgreSQL; ``options`` are further ones of ``postgres``, such as ``"-c", "deadlock_timeout=50ms"``."""

    program = "postgres"
    _farewell = signal.SIGINT  # the other signal waits until every client has left
    _reaper: subprocess.Popen[bytes] | None = None
    _frozen: frozenset[int] = frozenset()  # backends

    @property
    def main(self) -> Database:
        """The database ``postgres``, of a superuser without a password."""
        return self._database("postgres")

    def _database(self, name: str) -> Database:
        return Database("postgresql", self.port, "postgres", "", name)

    @property
    def socket_folder(self) -> Path:
        """The ``host`` for a connection over a socket in the file system."""
        return self.folder

    @property
    def memory(self) -> str:
        """The number of the shared memory that the kernel keeps for it, also when it is dead; none before a start."""
        notes = self._notes()
        return notes[6].split()[-1] if len(notes) > 6 else "none"

    def fresh(self) -> Database:
        """A new database. A schema would be cheaper still, but advisory locks and NOTIFY are seen across schemas.

        Copied as files it takes about 5 ms, and 8 MB; the default, through the log, takes ten times as long.
        """
        database = self._database(f"test_{next(self._numbers)}")
        self.execute(f"CREATE DATABASE {database.name} TEMPLATE template0 STRATEGY file_copy")
        return database

    def drop(self, database: Database) -> None:
        """Take a database away, with whoever is still connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement in the main database, and return its rows."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    # ------------------------------------------------------------ its life

    def _template(self) -> Path:
        return template()

    def _command(self) -> list[str]:
        places = {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        settings = [f"-c{name}={value}" for name, value in {**SETTINGS, **places}.items()]
        return [executable("postgres"), "-D", str(self.data), *settings, *self._options]

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        super().start()
        self._watch()
        return self

    def _answers(self) -> bool:
        lines = self._notes()
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _notes(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    # ------------------------------------------------------------ one backend: the process that serves one client

    def backends(self, database: Database | None = None) -> list[int]:
        """The processes that serve clients now, of one database or of all."""
        where = f"AND datname = '{database.name}'" if database else ""
        mine = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return [pid for (pid,) in self.execute(f"SELECT pid FROM pg_stat_activity WHERE {mine} {where} ORDER BY pid")]

    def freeze_backend(self, pid: int) -> None:
        """SIGSTOP to one backend: it keeps its locks and its transaction, and the others are served."""
        process.freeze(pid)
        self._frozen |= {pid}
        self._watch()

    def thaw_backend(self, pid: int) -> None:
        """SIGCONT."""
        os.kill(pid, signal.SIGCONT)
        self._frozen -= {pid}
        self._watch()

    def end_backend(self, pid: int) -> None:
        """As an administrator does: its client is told (57P01), its transaction is rolled back, the others stay."""
        self.execute(f"SELECT pg_terminate_backend({pid}, {round(PATIENCE * 1000)})")

    def kill_backend(self, pid: int) -> None:
        """SIGKILL to one backend. The server then ends all others and recovers, as after a crash; wait for that."""
        memory = self.memory
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.memory not in {memory, "none"} and self._serves(), "the server has recovered")
        self._frozen = frozenset()
        self._watch()

    def _serves(self) -> bool:
        import psycopg

        try:
            return self.execute("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    # ------------------------------------------------------------ all of it

    def freeze(self) -> None:
        """SIGSTOP to the server and to those of its processes that speak with clients."""
        process.freeze(self.pid)  # first: from here on there are no new ones
        self._tell_children(signal.SIGSTOP, "TZ")
        self._watch(self.pid, *process.children(self.pid))

    def thaw(self) -> None:
        """SIGCONT, also to backends that were frozen alone."""
        self._frozen = frozenset()
        self._watch()
        for pid in (*process.children(self.pid), self.pid):
            os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to all of its processes: one that is left would keep the next server from starting."""
        if self._process is not None and self._process.poll() is None:
            process.freeze(self.pid)  # else it would see them die, and start new ones
            self._tell_children(signal.SIGKILL, "Z")
            self._frozen = frozenset()
            self._watch()  # it may have crashed and recovered, with another piece of memory
        super().kill()
        if self._reaper is not None:
            self._reaper.communicate(timeout=PATIENCE)  # does its work
            self._reaper = None

    def _tell_children(self, what: signal.Signals, done: str) -> None:
        def told() -> bool:
            rest = [pid for pid in process.children(self.pid) if process.status(pid) not in done]
            for pid in rest:
                os.kill(pid, what)
            return not rest

        until(told, f"every process of the server has heard {what.name}")

    def _watch(self, *frozen: int) -> None:
        command = ["sh", "-c", REAPER, "reaper", self.memory, *map(str, {*frozen, *self._frozen})]
        before, self._reaper = (
            self._reaper,
            subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True),
        )
        if before is not None:
            before.kill()
            before.communicate(timeout=PATIENCE)


# ---------------------------------------------------------------- programs


@cache
def executable(name: str) -> str:
    """A program of the newest PostgreSQL of the system, which tools/servers.sh installs. They are not in the path."""
    found = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
    if newest is None:
        raise FileNotFoundError(f"no {name} of PostgreSQL here; tools/servers.sh installs it")
    return str(newest)


@cache
def template() -> Path:
    """Made once for each process of the tests: half a second, and 28 MB."""
    data = empty_folder("template") / "data"
    how = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--wal-segsize=1"]
    run([executable("initdb"), *how, "-D", str(data)])
    return data
