"""Servers start, are harmed, come back with their data, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.support.servers import process
from tests.support.servers.certificates import Certificates
from tests.support.servers.process import status
from tests.support.servers.redis import EVERY, RedisServer, valkey, version
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
Start = Callable[..., RedisServer]

CHILD = """
import time
from tests.support.servers import process
from tests.support.servers.clock import OneClock
from tests.support.servers.redis import RedisServer

clock = OneClock()
first, second = RedisServer(clock=clock).start(), RedisServer().start()
second.freeze()
print(process.home(), clock.environment()["LD_PRELOAD"], first.pid, second.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(params=EVERY, ids=lambda find: find.__name__)
def executable(request: pytest.FixtureRequest) -> str:
    """Each program that can be a server."""
    find: Callable[[], str] = request.param
    return find()


# ---------------------------------------------------------------- life


def test_a_server_answers_at_every_address(executable: str, own_redis: Start) -> None:
    """TCP and the socket in the file system lead to the same data."""
    server = own_redis(executable=executable)
    server.client().set("key", "value")
    with redis.Redis.from_url(server.url) as by_tcp, redis.Redis.from_url(server.unix_url) as by_socket:
        assert by_tcp.get("key") == by_socket.get("key") == b"value"


def test_the_programs_are_what_they_are_called(own_redis: Start) -> None:
    """The one of the system, Valkey, and the oldest that is supported where there is one."""
    versions = {find.__name__: version(find()) for find in EVERY}
    assert versions["redis_7"] >= (7,) and versions["valkey"] >= (9,)
    assert versions.get("redis_6_2", (6, 2))[:2] == (6, 2)
    assert own_redis(executable=valkey()).client().info("server")["server_name"] == "valkey"


def test_debugging_is_on_where_it_must_be_allowed(executable: str, own_redis: Start) -> None:
    """DEBUG works on every server: 7 forbids it by itself, 6.2 does not know that one could."""
    assert own_redis(executable=executable).ask("DEBUG SLEEP 0") == b"+OK\r\n"


def test_stop_leaves_nothing(executable: str) -> None:
    """No process, no folder, no socket, no listener, no open client; also when it was frozen."""
    server = RedisServer(executable=executable).start()
    pid, files = server.pid, list(process.home().glob(f"*{server.port}*"))
    server.client().ping()
    server.freeze()
    server.stop()
    assert status(pid) == "" and files and not any(file.exists() for file in [server.folder, *files])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


def test_a_folder_that_was_given_is_kept(tmp_path: Path) -> None:
    """Who brings a folder finds the data in it afterwards."""
    with RedisServer(tmp_path, appendonly=True) as server:
        server.client().set("key", "value")
    with RedisServer(tmp_path, appendonly=True) as another:
        assert another.client().get("key") == b"value"


def test_a_crash_and_a_restart_keep_place_and_data(executable: str, own_redis: Start) -> None:
    """Both times it is another process at the same address, with what was written to disk."""
    server = own_redis(executable=executable, appendonly=True)
    client, port, pids = server.client(), server.port, {server.pid}
    client.set("key", "value")
    server.kill()
    server.start()
    pids.add(server.pid)
    assert client.get("key") == b"value"
    server.restart()
    pids.add(server.pid)
    assert client.get("key") == b"value" and server.port == port and len(pids) == 3


def test_without_a_file_a_crash_forgets(own_redis: Start) -> None:
    """By default nothing is written to disk."""
    server = own_redis()
    server.client().set("key", "value")
    server.kill()
    server.start()
    assert server.client().dbsize() == 0


def test_a_frozen_server_is_silent_and_goes_on(own_redis: Start) -> None:
    """It accepts connections and answers nobody; after that it answers everybody."""
    server = own_redis()
    hasty = server.client(socket_timeout=0.05, retry=None)
    server.freeze()
    with pytest.raises(redis.TimeoutError):
        hasty.ping()
    server.thaw()
    assert server.client().ping()


def test_wiped_is_as_new(redis_server: RedisServer, redis_url: str) -> None:
    """Neither keys nor scripts of one test are seen by the next."""
    client = redis_server.client()
    script = client.script_load("return 1")
    client.set("key", "value")
    redis_server.wipe()
    assert client.dbsize() == 0 and client.script_exists(script) == [False]


# ---------------------------------------------------------------- starting


def test_options_are_handed_on(own_redis: Start) -> None:
    """They come last, so they win."""
    server = own_redis(None, "--maxmemory", "5mb", "--requirepass", "secret")
    assert server.client(password="secret").config_get("maxmemory") == {"maxmemory": "5242880"}


def test_a_server_that_cannot_start_says_why() -> None:
    """The error holds its log, and nothing is left behind."""
    before = set(process.home().iterdir())
    with pytest.raises(RuntimeError, match="nonsense"), RedisServer(None, "--nonsense", "1"):
        pass
    assert set(process.home().iterdir()) == before


def test_a_port_is_given_once() -> None:
    """A port that is reserved or listened on is not given again, and asking for it fails."""
    with RedisServer() as server, process.reserve() as place:
        assert place.getsockname()[1] != server.port
        with pytest.raises(OSError, match="taken"):
            process.reserve(server.port)
    with RedisServer(port=server.port) as again:
        assert again.port == server.port


def test_a_server_survives_the_thread_that_started_it(own_redis: Start) -> None:
    """Who brings servers down and up again may be a thread that ends before the test does."""
    server = own_redis()
    server.kill()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.05)
    assert server.client().ping()


def test_nothing_survives_the_tests() -> None:
    """kill -9 of the process that started them: the servers are gone, one of them frozen, and so are the folders."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        home, library, *pids = child.stdout.readline().split()
        assert Path(home).is_dir() and Path(library).is_file() and all(status(int(pid)) for pid in pids)
        child.kill()
    until(lambda: not any(status(int(pid)) for pid in pids), "the servers are gone")
    until(lambda: not Path(home).exists() and not Path(library).parent.exists(), "the folders are gone")


# ---------------------------------------------------------------- TLS


def test_tls_with_both_certificates(own_redis: Start, certificates: Certificates) -> None:
    """Client and server trust each other by a common authority."""
    server = own_redis(tls=certificates)
    with redis.Redis.from_url(server.tls_url, **certificates.arguments()) as client:
        assert client.ping()


def test_tls_refuses_strangers(own_redis: Start, certificates: Certificates, tmp_path: Path) -> None:
    """No certificate, or one of another authority: the server refuses. And the client refuses a strange server."""
    server, stranger = own_redis(tls=certificates), Certificates(tmp_path).arguments()
    ours = certificates.arguments()
    for wrong in (
        {"ssl_ca_certs": ours["ssl_ca_certs"]},
        {**stranger, "ssl_ca_certs": ours["ssl_ca_certs"]},
        {**ours, "ssl_ca_certs": stranger["ssl_ca_certs"]},
    ):
        with redis.Redis.from_url(server.tls_url, retry=None, **wrong) as client, pytest.raises(redis.ConnectionError):
            client.ping()
