"""Real MariaDB servers."""

from __future__ import annotations

import os
import shutil
import socket
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.servers.database import Database, DatabaseServer, empty_folder, run
from tests.support.waiting import PATIENCE

# The data files of a template and of the servers that are copied from it must have the same shape.
SHAPE = [
    "--innodb-log-file-size=4M",
    "--innodb-data-file-path=ibdata1:10M:autoextend",
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",  # Debian's choice; MariaDB's own is latin1
]
# No flush to disk, and as little memory as is enough. Commits reach the kernel: a crash of the server loses none.
SETTINGS = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--max-connections=200",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--innodb-use-native-aio=0",  # the kernel has few of those, and many servers may run at once
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-buffer-size=2M",
    "--innodb-read-io-threads=1",
    "--innodb-write-io-threads=2",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--innodb-buffer-pool-load-at-startup=0",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=1M",
]
USER, PASSWORD = "tester", "secret"
ACCESS = f"""FLUSH PRIVILEGES;
CREATE DATABASE test;
CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO {USER}@'%' WITH GRANT OPTION;
"""


class MariaServer(DatabaseServer):
    """A MariaDB; ``options`` are further ones of ``mariadbd``, such as ``"--lock-wait-timeout=1"``."""

    program = "mariadb"

    @property
    def main(self) -> Database:
        """The database ``test``, of a user with a password who may do everything."""
        return self._database("test")

    def _database(self, name: str) -> Database:
        return Database("mysql", self.port, USER, PASSWORD, name)

    @property
    def socket(self) -> str:
        """The ``unix_socket`` for a connection over the file system."""
        return str(self.folder / "socket")

    def fresh(self) -> Database:
        """A new database: a folder, made in about a millisecond. Locks of GET_LOCK are seen across databases."""
        database = self._database(f"test_{next(self._numbers)}")
        self.execute(f"CREATE DATABASE {database.name}")
        return database

    def drop(self, database: Database) -> None:
        """Take a database away, with whoever is still connected to it: a transaction left open would keep it."""
        lingering = f"SELECT id FROM information_schema.processlist WHERE db = '{database.name}'"
        for (session,) in self.execute(lingering):
            self.execute(f"KILL {session}", unless=1094)  # it has left by itself
        self.execute(f"DROP DATABASE IF EXISTS {database.name}")

    def execute(self, statement: str, unless: int = 0) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows; the error of that number is none."""
        import pymysql

        # Without ssl_disabled PyMySQL reads every authority that the system trusts, 40 ms each time.
        how: dict[str, Any] = {"unix_socket": self.socket, "ssl_disabled": True, "autocommit": True}
        with pymysql.connect(**self.parameters, **how) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement)
            except pymysql.MySQLError as error:
                if error.args[0] != unless:
                    raise
                return []
            return list(cursor.fetchall())

    # ------------------------------------------------------------ its life

    def _template(self) -> Path:
        return template()

    def _command(self) -> list[str]:
        # A server that starts removes every temporary table in its tmpdir, also those of others.
        own = [f"--pid-file={self.folder / 'pid'}", f"--tmpdir={self.folder}"]
        places = [f"--port={self.port}", f"--socket={self.socket}", *own]
        return [executable(), "--no-defaults", f"--datadir={self.data}", *places, *SHAPE, *SETTINGS, *self._options]

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            try:
                line.connect(self.socket)
                return line.recv(5)[4:] == b"\x0a"  # its greeting: a length, a number, and the protocol's version 10
            except (FileNotFoundError, ConnectionError):
                return False


# ---------------------------------------------------------------- programs


@cache
def executable(name: str = "mariadbd") -> str:
    """A program of the MariaDB of the system, which tools/servers.sh installs."""
    found = shutil.which(name, path=os.pathsep.join([*os.get_exec_path(), "/usr/sbin"]))
    if found is None:
        raise FileNotFoundError(f"no {name} here; tools/servers.sh installs it")
    return found


@cache
def template() -> Path:
    """Made once for each process of the tests: half a second, and 19 MB."""
    folder = empty_folder("template")
    data, access = folder / "data", folder / "access.sql"
    access.write_text(ACCESS)
    access.chmod(0o644)
    who = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
    places = [f"--datadir={data}", f"--extra-file={access}", f"--tmpdir={folder}"]  # see above
    how = ["--innodb-flush-method=nosync", "--innodb-use-native-aio=0", "--skip-log-bin"]
    run([executable("mariadb-install-db"), "--no-defaults", *places, *who, *SHAPE, *how])
    return data
