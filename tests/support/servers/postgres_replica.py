"""A PostgreSQL with a streaming standby, synchronous or not: the link between them is cut, the standby is promoted."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from tests.support.servers.clock import WallClock
from tests.support.servers.database import Database
from tests.support.servers.postgres import REPLICATED, PostgresServer
from tests.support.servers.proxy import Proxy
from tests.support.servers.server import start_together
from tests.support.waiting import PATIENCE, until

# What it waits between two attempts to reach the primary: 5 seconds by default.
FOLLOWING = ("-cwal_retrieve_retry_interval=50ms",)


class PostgresPair:
    """It starts with ``with``: a primary, and a standby that follows it and can be read.

    Both begin with the same data, so nothing has to be copied. With ``synchronous`` a commit is acknowledged when the
    standby has it, and waits while there is no standby. With ``clocks`` each server has a clock that the test can set
    (``clocks[0]`` is the first primary's). ``options`` are for both.
    """

    def __init__(self, *options: str, synchronous: bool = True, clocks: bool = False) -> None:
        names = ("-csynchronous_standby_names=*",) if synchronous else ()
        self.clocks = [WallClock(), WallClock()] if clocks else []
        first, second = self.clocks or (None, None)
        self.primary = PostgresServer(*REPLICATED, *names, *options, clock=first)
        # Not synchronous itself: once it is promoted nobody follows it, and no commit would ever be acknowledged.
        self.standby = PostgresServer(*REPLICATED, *FOLLOWING, *options, clock=second)
        self._both = (self.primary, self.standby)
        self._link = Proxy(self.primary.port)
        self._stack = ExitStack()
        self._follow(self.standby)

    def _follow(self, standby: PostgresServer) -> None:
        where = f"host=127.0.0.1 port={self._link.port} user=postgres application_name=standby"
        with (standby.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{where}'\n")
        (standby.data / "standby.signal").touch()

    # ------------------------------------------------------------ where it is

    @property
    def url(self) -> str:
        """Both servers in one URL: libpq connects to the one that takes writes."""
        first, second = (server.main for server in self._both)
        places = ",".join(f"{one.host}:{one.port}" for one in (first, second))
        return f"postgresql://{first.user}@{places}/{first.name}?target_session_attrs=read-write"

    @property
    def main(self) -> Database:
        """The database of the primary."""
        return self.primary.main

    # ------------------------------------------------------------ what happens to it

    def cut_replication(self) -> None:
        """From now on nothing reaches the standby from the primary; both live on."""
        self._link.refuse()
        self._link.cut()
        until(lambda: not self._streams(), "the primary has noticed")

    def heal(self) -> None:
        """The link is there again, and the standby in step."""
        self._link.accept()
        self.settle()

    def settle(self) -> None:
        """Wait until the standby has everything that the primary has written."""
        until(self._streams, "the standby follows the primary")
        until(self._in_step, "the standby is in step")

    def promote(self) -> PostgresServer:
        """The standby takes writes from now on, whatever the old primary does, and is ``primary`` here."""
        ((done,),) = self.standby.execute(f"SELECT pg_promote(true, {round(PATIENCE)})")
        assert done, "it was not promoted in time"
        self.primary, self.standby = self.standby, self.primary
        return self.primary

    def _streams(self) -> bool:
        query = "SELECT 1 FROM pg_stat_replication WHERE application_name = 'standby' AND state = 'streaming'"
        return bool(self.primary.execute(query))

    def _in_step(self) -> bool:
        ((written,),) = self.primary.execute("SELECT pg_current_wal_lsn()::text")
        ((reached,),) = self.standby.execute(f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn")
        return bool(reached)

    # ------------------------------------------------------------ its life

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._link)
            start_together(self._both)
            for server in self._both:
                stack.callback(server.stop)
            self.settle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.close()
