"""A Redis and a PostgreSQL for one run: from the programs that are installed, in a folder that is removed afterwards.

They listen on sockets in that folder, and on no port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 20.0  # seconds for a server to start
DEBIAN = Path("/usr/lib/postgresql")  # where it keeps each version of PostgreSQL, out of the path


class Missing(Exception):
    """A server is not installed."""


@contextmanager
def redis_server() -> Iterator[str]:
    """A Redis that runs inside the block. Yields its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise Missing(_advice("redis-server", "--redis redis://HOST:6379/0"))
    with tempfile.TemporaryDirectory(prefix="reports-") as folder:
        place = Path(folder, "redis.sock")
        command = [program, "--port", "0", "--unixsocket", str(place), "--save", "", "--dir", folder]
        with _running(command, Path(folder), signal.SIGTERM, place.exists):
            yield f"unix://{place}"


@contextmanager
def postgres_server() -> Iterator[str]:
    """A PostgreSQL that runs inside the block. Yields its DSN."""
    newest = sorted(DEBIAN.glob("*/bin"), key=lambda path: int(path.parts[-2]))[-1:]
    found = shutil.which("postgres", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, newest)]))
    if found is None:
        raise Missing(_advice("postgresql", "--postgres postgresql://USER@HOST/DATABASE"))
    with tempfile.TemporaryDirectory(prefix="reports-") as name:
        folder, user = Path(name), _account()
        if user:
            os.chown(folder, user["user"], user["group"])
        how = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        initdb = [str(Path(found).with_name("initdb")), *how, "-D", f"{folder}/data"]
        subprocess.run(initdb, cwd=folder, check=True, stdout=subprocess.DEVNULL, **user)
        options = ["-clisten_addresses=", f"-cunix_socket_directories={folder}", "-cfsync=off"]
        command = [found, "-D", f"{folder}/data", *options]

        def ready() -> bool:
            notes = folder / "data" / "postmaster.pid"
            return notes.exists() and "ready" in notes.read_text().split()

        with _running(command, folder, signal.SIGINT, ready, **user):  # SIGINT: it does not wait for its clients
            yield f"host={folder} user=postgres dbname=postgres"


@contextmanager
def _running(
    command: Sequence[str], folder: Path, ending: signal.Signals, ready: Callable[[], bool], **user: Any
) -> Iterator[None]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            tied(command, ending),
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C ends this process, which ends the server
            **user,
        )
    try:
        end = time.monotonic() + PATIENCE
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not start:\n{log.read_text()}")
            time.sleep(0.01)  # between two checks
        yield
    finally:
        process.send_signal(ending)
        process.wait(PATIENCE)


def tied(command: Sequence[str], ending: signal.Signals) -> list[str]:
    """A command that gets this signal when our process ends, even if it was killed; not where setpriv is missing."""
    prefix = ["setpriv", "--pdeathsig", ending.name.removeprefix("SIG")] if shutil.which("setpriv") else []
    return [*prefix, *command]


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as the user ``nobody``."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _advice(package: str, option: str) -> str:
    return f"{package} is not installed. Install it (apt-get install {package}), or give one that runs: {option}"
