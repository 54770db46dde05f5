"""Real servers and real clients: uvicorn, gunicorn and wsgiref, with large bodies, kept connections, lost clients."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx
import pytest

from leasehold.guards.guard import Guard
from leasehold.guards.http import WSGIFencingMiddleware
from leasehold.testing.guards import CASES
from tests.support.guards.http_tools import HTTPGuard, memory, token, wsgi_guard
from tests.support.programs import SOURCE
from tests.support.servers.process import reserve, start
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0
LARGE = bytes(5_000_000)

# They keep idle connections long: on a busy machine a client may send its next request just when one is closed.
SERVERS = {
    "uvicorn": ["uvicorn", "--log-level", "warning", "--timeout-keep-alive", "600",
                "tests.support.guards.http_site:asgi", "--port"],
    "gunicorn": ["gunicorn", "--log-level", "warning", "--worker-class", "gthread", "--threads", "10",
                 "--keep-alive", "600", "--timeout", "600", "tests.support.guards.http_site:wsgi", "--bind"],
}  # fmt: skip


class Site:
    """A server in a process of its own, and who asks it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.place = reserve()
        self.port = self.place.getsockname()[1]
        self.log = folder / "log"
        where = str(self.port) if name == "uvicorn" else f"127.0.0.1:{self.port}"
        command = [sys.executable, "-W", "error", "-m", *SERVERS[name], where]
        self.process: subprocess.Popen[bytes] = start(command, ROOT, self.log, {"PYTHONPATH": f"{SOURCE}:{ROOT}"})
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE, trust_env=False)

    def state(self) -> dict[str, Any]:
        """What it keeps."""
        found: dict[str, Any] = self.client.get("/state").json()
        return found

    def up(self) -> bool:
        """Does it answer?"""
        try:
            return bool(self.state())
        except httpx.TransportError:
            assert self.process.poll() is None, self.log.read_text()
            return False

    def post(self, fence: int, path: str = "/reports/42", **more: Any) -> httpx.Response:
        """A request of a holder."""
        return self.client.post(path, headers=dict(token(fence)), **more)

    def close(self) -> None:
        """Gone, and it has not complained."""
        self.client.close()
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.place.close()


@contextmanager
def serving(name: str, folder: Path) -> Iterator[Site]:
    """A site that is up."""
    site = Site(name, folder)
    try:
        until(site.up, "it is up", PATIENCE)
        yield site
    finally:
        site.close()


@pytest.fixture(scope="module", params=SERVERS)
def each_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Each server, started once."""
    with serving(request.param, tmp_path_factory.mktemp(request.param)) as site:
        yield site


@pytest.fixture
def site(each_server: Site) -> Site:
    """A server whose guard has seen nothing."""
    each_server.client.get("/fresh").raise_for_status()
    return each_server


# ---------------------------------------------------------------- the contract


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_contract_over_a_socket(case: str, site: Site) -> None:
    """A guard behind the middleware of a real server keeps the contract of every guard; nobody is left inside."""
    guard: Guard = HTTPGuard(site.client)
    CASES[case](guard)
    assert site.state()["inside"] == 0


@pytest.mark.parametrize("case", CASES)
def test_contract_without_a_socket(case: str) -> None:
    """The same through WSGI alone."""
    with contextmanager(wsgi_guard)() as guard:
        CASES[case](guard)


# ---------------------------------------------------------------- requests that are refused


@pytest.mark.slow
@pytest.mark.parametrize("sent", [[], token(9), token("garbled")], ids=["missing", "stale", "garbled"])
def test_a_large_body_that_is_refused(site: Site, sent: Any) -> None:
    """The client gets its answer, and the connection serves the next request."""
    assert site.post(10).status_code == 200
    for body in (LARGE, (LARGE[:100_000] for _ in range(50)), b""):
        refused = site.client.post("/upload", headers=dict(sent), content=body)
        assert refused.status_code in (400, 409)
        assert refused.headers["content-type"] == "application/problem+json"
        assert site.post(10, "/upload", content=LARGE).json() == {"size": len(LARGE)}
    assert site.state()["inside"] == 0


@pytest.mark.slow
def test_a_kept_connection(site: Site) -> None:
    """Accepted and refused requests take turns on one connection, which is never lost."""
    with socket.create_connection(("127.0.0.1", site.port), PATIENCE) as connection, connection.makefile("rb") as lines:
        for fence, status in ((10, 200), (9, 409), (11, 200), (10, 409), (11, 200)):
            sent = "".join(f"{name}: {value}\r\n" for name, value in token(fence))
            request = f"POST /reports/42 HTTP/1.1\r\nHost: x\r\n{sent}Content-Length: 5\r\n\r\nhello"
            connection.sendall(request.encode())
            assert lines.readline().split()[1] == str(status).encode()
            read_answer(lines)


def read_answer(lines: Any) -> bytes:
    """The rest of a response."""
    fields = {}
    while (line := lines.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    if b"content-length" in fields:
        return bytes(lines.read(int(fields[b"content-length"])))
    found = b""
    while (size := int(lines.readline(), 16)) > 0:
        found += lines.read(size + 2)[:-2]
    lines.readline()
    return found


@pytest.mark.slow
def test_wsgiref_and_a_large_body() -> None:
    """The server of the standard library closes each connection: without draining it would reset this one, and the
    client would never see why it was refused."""

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing."""

    app = WSGIFencingMiddleware(lambda *_: [], memory())
    with make_server("127.0.0.1", 0, app, Server, Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            for _ in range(5):
                client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
                client.request("POST", "/reports/42", LARGE, dict(token(9)))
                assert json.load(client.getresponse())["type"] == "urn:leasehold:stale-owner"
                client.close()
        finally:
            server.shutdown()
            thread.join(PATIENCE)


# ---------------------------------------------------------------- one step


@pytest.mark.slow
def test_a_slow_handler_is_not_overtaken(site: Site, tmp_path: Path) -> None:
    """A passed the door and thinks; B has a newer fence. B reads what A wrote: no lost update."""
    gate = tmp_path / "gate"
    with ThreadPoolExecutor(2) as pool:
        older = pool.submit(site.post, 10, f"/reports/42?gate={gate}")
        until(lambda: site.state()["inside"] == 1, "A is inside")
        newer = pool.submit(site.post, 11)
        until(lambda: site.state()["inside"] == 2 or newer.done(), "B is at the door")
        assert site.post(9).status_code == 409
        gate.touch()
        assert [one.result().status_code for one in (older, newer)] == [200, 200]
    assert site.state() == {"value": 2, "writes": [10, 11], "inside": 0}


@pytest.mark.slow
def test_eight_clients_lose_no_update(site: Site) -> None:
    """Stale and fresh tokens in a race, each read-modify-write with a pause: every accepted one is in the counter."""
    chance = random.Random(9)
    fences = sorted(range(1, 161), key=lambda fence: fence + chance.randrange(30))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda fence: site.post(fence, "/reports/42?pause=0.003").status_code, fences))
    assert set(answers) == {200, 409}
    found = site.state()
    assert found["value"] == len(found["writes"]) == answers.count(200)
    assert found["writes"] == sorted(found["writes"]) and found["inside"] == 0


# ---------------------------------------------------------------- clients that go


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/reports/42?pause=0.3", "/stream?chunks=100"])
def test_a_client_that_goes(site: Site, path: str) -> None:
    """In the middle of its request: the work ends, or is ended, and only then a newer owner goes in."""
    sent = "".join(f"{name}: {value}\r\n" for name, value in token(10))
    with socket.create_connection(("127.0.0.1", site.port), PATIENCE) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{sent}Content-Length: 0\r\n\r\n".encode())
        until(lambda: site.state()["inside"] == 1 or site.state()["writes"] == [10], "it is inside")
    assert site.post(11).status_code == 200
    found = site.state()
    assert found["writes"] in ([10, 11], [11]) and found["value"] == len(found["writes"])
    assert found["inside"] == 0


@pytest.mark.slow
def test_half_a_request(site: Site) -> None:
    """A body that never arrives keeps nobody out: not after its client has gone."""
    sent = "".join(f"{name}: {value}\r\n" for name, value in token(10))
    with socket.create_connection(("127.0.0.1", site.port), PATIENCE) as connection:
        connection.sendall(f"POST /upload HTTP/1.1\r\nHost: x\r\n{sent}Content-Length: 500\r\n\r\nhalf".encode())
        until(lambda: site.state()["inside"] == 1, "it is inside")
    until(lambda: site.state()["inside"] == 0, "it is gone")
    assert site.post(11).status_code == 200


# ---------------------------------------------------------------- clients that are frozen


@pytest.fixture
def asgi_site(tmp_path: Path) -> Iterator[Site]:
    """A server that can be told to give up a client: what blocks in a WSGI server cannot."""
    with serving("uvicorn", tmp_path) as site:
        yield site


@pytest.mark.slow
def test_frozen_in_the_middle_of_a_request(asgi_site: Site) -> None:
    """A is frozen with half a body sent. B gets in, at its first try; A wakes, sends the rest, and it is too late."""
    sent = "".join(f"{name}: {value}\r\n" for name, value in token(10))
    with socket.create_connection(("127.0.0.1", asgi_site.port), PATIENCE) as connection:
        connection.sendall(f"POST /upload HTTP/1.1\r\nHost: x\r\n{sent}Content-Length: 8\r\n\r\nhalf".encode())
        until(lambda: asgi_site.state()["inside"] == 1, "it is inside")
        assert asgi_site.post(11, "/upload", content=b"whole").json() == {"size": 5}
        assert asgi_site.state() == {"value": 1, "writes": [11], "inside": 0}
        answer = finish(connection, b"rest")
    assert not answer.startswith(b"HTTP/1.1 2")
    assert asgi_site.state() == {"value": 1, "writes": [11], "inside": 0}


@pytest.mark.slow
def test_frozen_in_the_middle_of_a_response(asgi_site: Site) -> None:
    """A takes nothing of a response that writes at its end: it is ended, and its write never comes."""
    sent = "".join(f"{name}: {value}\r\n" for name, value in token(10))
    with socket.create_connection(("127.0.0.1", asgi_site.port), PATIENCE) as connection:
        path = "/stream?chunks=200&size=1000000"
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{sent}Content-Length: 0\r\n\r\n".encode())
        until(lambda: asgi_site.state()["inside"] == 1, "it is inside")
        assert asgi_site.post(11).status_code == 200
        assert asgi_site.state() == {"value": 1, "writes": [11], "inside": 0}


def finish(connection: socket.socket, rest: bytes) -> bytes:
    """Send the rest, and what comes back until the connection ends."""
    found = b""
    try:
        connection.sendall(rest)
        while chunk := connection.recv(65536):
            found += chunk
    except ConnectionError:  # the server has closed it already
        return found
    return found
