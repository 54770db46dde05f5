"""Programs that tests start. They end with the tests, whatever happens, and leave no folder and no port behind."""

from __future__ import annotations

import atexit
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE, until

# Below the ports that the kernel gives to clients: one that calls a server which is down could be given its port.
PORTS = range(11_000, 21_000)
ROOM = 1 << 30  # bytes that servers may need in memory; a container often has 64 MB there
KEEPER = 'read -r _; for _ in 1 2 3 4 5; do rm -rf -- "$1" && break; sleep 0.1; done'


def temporary(place: str | None = None) -> Path:
    """A folder that goes away with this process, even when it is killed."""
    folder = tempfile.mkdtemp(prefix="leasehold-", dir=place)
    # The keeper reads until the pipe ends, and the pipe ends with us.
    keeper = subprocess.Popen(["sh", "-c", KEEPER, "keeper", folder], stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(keeper.communicate)
    return Path(folder)


@cache
def home() -> Path:
    """Where servers keep their files: in memory when that can be had. The path is short, as sockets need it."""
    memory = "/dev/shm"
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM
    folder = temporary(memory if roomy else None)
    folder.chmod(0o711)  # a server that runs as somebody else finds its way to the folder that is its own
    return folder


def account() -> dict[str, Any]:
    """Whom Popen starts a server as that refuses to be root: nobody, when we are root, else ourselves."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give(folder: Path) -> None:
    """Make a folder the property of that account."""
    if user := account():
        os.chown(folder, user["user"], user["group"])


def reserve(port: int | None = None) -> socket.socket:
    """A port of 127.0.0.1 that nobody else is given while this socket is open. One server may listen there."""
    chance = random.SystemRandom()
    for _ in range(100):
        place = socket.socket()
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, port is not None)
        try:
            place.bind(("127.0.0.1", port or chance.choice(PORTS)))
        except OSError:
            place.close()
        else:
            # Only from here on: two sockets that say so may share a port, and the first bind must find it free.
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return place
    raise OSError(f"port {port} is taken" if port else "no port is free")


@cache
def _starter() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "starts servers")


def start(command: list[str], folder: Path, log: Path, more: Mapping[str, str], **user: Any) -> subprocess.Popen[bytes]:
    """Start a program that is killed when this process ends. ``user`` is an ``account``."""

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            cwd=folder,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the tests; they stop it
            **user,  # changed before setpriv runs: a change afterwards would undo what that does
        )

    # The kernel kills it when the thread ends that started it. So one thread starts them all, and stays.
    with log.open("ab") as output:
        return _starter().submit(begin).result(PATIENCE)


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until it stands still."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: status(pid) == "T", f"{pid} stands still")


def children(pid: int) -> list[int]:
    """The processes that it has started and not buried."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def status(pid: int) -> str:
    """The kernel's letter for what a process does, empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
