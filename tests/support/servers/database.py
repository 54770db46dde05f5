"""What database servers have in common: data copied from a template, and a fresh database for each test."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support.servers import process
from tests.support.servers.clock import OneClock, WallClock
from tests.support.servers.disk import Disk
from tests.support.servers.preload import together
from tests.support.servers.server import Server
from tests.support.waiting import PATIENCE


@dataclass(frozen=True)
class Database:
    """Where a database is, in the words of the drivers."""

    scheme: str
    port: int
    user: str
    password: str
    name: str
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Such as ``postgresql://postgres@127.0.0.1:11000/test_1``, which psycopg and asyncpg take."""
        return self._url(self.scheme)

    @property
    def dsn(self) -> str:
        """The same, as psycopg calls it."""
        return self.url

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments for PyMySQL, aiomysql (there ``database`` is ``db``) and asyncpg."""
        parts = {"host": self.host, "port": self.port, "user": self.user, "database": self.name}
        return {**parts, "password": self.password} if self.password else parts

    def sqlalchemy_url(self, driver: str, scheme: str | None = None, **query: str) -> str:
        """For ``create_engine``; ``scheme="mariadb"`` asks for SQLAlchemy's stricter dialect."""
        return self._url(f"{scheme or self.scheme}+{driver}") + (f"?{urlencode(query)}" if query else "")

    def _url(self, scheme: str) -> str:
        who = f"{self.user}:{self.password}" if self.password else self.user
        return f"{scheme}://{who}@{self.host}:{self.port}/{self.name}"


class DatabaseServer(Server):
    """A server of its own, on its own port. Root starts it as nobody, anybody else as himself.

    Nothing is flushed to a disk: what was committed survives ``kill``, but would not survive a loss of power.
    """

    program: str

    def __init__(
        self,
        *options: str,
        port: int | None = None,
        clock: WallClock | OneClock | None = None,
        disk: Disk | None = None,
        place: Path | None = None,
    ) -> None:
        """``place``: a folder for its data that is not in memory."""
        self._account = process.account()
        self._clock = clock
        self._disk = disk
        self._options = options
        template = self._template()  # before there is anything to leave behind
        self._place = process.reserve(port)
        self.port: int = self._place.getsockname()[1]
        self.folder = empty_folder(self.program, place)
        self.data = self.folder / "data"
        self._numbers = itertools.count(1)
        run(["cp", "--archive", str(template), str(self.data)])

    @abstractmethod
    def _template(self) -> Path:
        """The data of a server that has never run; made once."""

    @property
    @abstractmethod
    def main(self) -> Database:
        """The database that is always there."""

    @abstractmethod
    def fresh(self) -> Database:
        """A new database that is empty; the next test gets another one."""

    @abstractmethod
    def drop(self, database: Database) -> None:
        """Take a database away, with whoever is still connected to it."""

    # ------------------------------------------------------------ where it is: the words of the main database

    @property
    def url(self) -> str:
        """Of the main database."""
        return self.main.url

    @property
    def dsn(self) -> str:
        """Of the main database."""
        return self.main.dsn

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the main database."""
        return self.main.parameters

    def sqlalchemy_url(self, driver: str, scheme: str | None = None, **query: str) -> str:
        """Of the main database."""
        return self.main.sqlalchemy_url(driver, scheme, **query)

    def _environment(self) -> dict[str, str]:
        return together(one.environment() for one in (self._clock, self._disk) if one)

    # ------------------------------------------------------------ its end

    def stop(self) -> None:
        """Gone, with everything that it wrote."""
        self.kill()
        self._place.close()
        shutil.rmtree(self.folder)


def empty_folder(name: str, place: Path | None = None) -> Path:
    """For a server or a template, owned by the account that it runs as."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place or process.home()))
    process.give(folder)
    return folder


def run(command: list[str]) -> None:
    """Run a program to its end, as the account that servers run as."""
    ended = subprocess.run(
        command,
        cwd=process.home(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=6 * PATIENCE,
        check=False,
        **process.account(),
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{ended.stdout}")
