"""Real servers, several of them over one store: repetitions, collisions, lost clients, kill -9 and freezes."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.programs import SOURCE
from tests.support.servers.process import freeze, reserve, start
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

ROOT = Path(__file__).parents[4]
PATIENCE = 60.0
COMMAND = [
    sys.executable,
    "-W",
    "error",
    "-m",
    "uvicorn",
    "--log-level",
    "warning",
    "tests.integration.patterns.idempotency.site:app",
]
_numbers = itertools.count(1)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("idempotency-servers")]  # three servers for all of them


class Server:
    """One uvicorn, in a process of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.journal = folder / "journal"
        self.place = reserve()
        port = self.place.getsockname()[1]
        self.log = folder / f"{port}.log"
        more = {"PYTHONPATH": f"{SOURCE}:{ROOT}", "LEASEHOLD_URL": url, "JOURNAL": str(self.journal)}
        self.process = start([*COMMAND, "--port", str(port)], ROOT, self.log, more)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False)

    def up(self) -> bool:
        """Does it answer?"""
        try:
            return self.client.get("/").status_code == 200
        except httpx.TransportError:
            assert self.process.poll() is None, self.log.read_text()
            return False

    def pay(
        self, key: str, pause: float = 0, path: str = "/pay", body: str = "5", gate: Path | None = None
    ) -> httpx.Response:
        """One request."""
        asked = {"id": key, "pause": str(pause), "gate": str(gate or "")}
        return self.client.post(path, params=asked, content=body, headers={"Idempotency-Key": key})

    def paid(self, key: str) -> list[str]:
        """What the journal says about it: who did it, and what came after."""
        lines = [line.split() for line in self.journal.read_text().splitlines()] if self.journal.exists() else []
        return [what for name, what in lines if name == key]

    def close(self) -> None:
        """Gone, and it has not complained."""
        self.client.close()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.place.close()


@pytest.fixture(scope="module")
def servers(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two that share a store, and one to be killed. They are wiped by nobody: each test has keys of its own."""
    folder = tmp_path_factory.mktemp("servers")
    found = [Server(redis_server.url, folder) for _ in range(3)]
    try:
        for one in found:
            until(one.up, "it is up", PATIENCE)
        yield found
    finally:
        for one in found:
            one.close()


@pytest.fixture
def key() -> str:
    """One that nobody has used."""
    return f"k-{os.getpid()}-{next(_numbers)}"


@pytest.mark.parametrize("path", ["/pay", "/stream"])
def test_repeated_elsewhere(servers: list[Server], key: str, path: str) -> None:
    """The other server gives the same response, also one that was streamed; another body is refused by both."""
    one, two, _ = servers
    first, again = one.pay(key, path=path), two.pay(key, path=path)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true" and "idempotency-replayed" not in first.headers
    assert [server.pay(key, path=path, body="6").status_code for server in (one, two)] == [422, 422]
    until(lambda: len(one.paid(key)) == (2 if path == "/pay" else 1), "what comes after the response is done, once")


def test_many_at_once(servers: list[Server], key: str, tmp_path: Path) -> None:
    """20 clients on two servers: one is served, the others are told to come back, and get its response then."""
    gate = tmp_path / "gate"
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(servers[number % 2].pay, key, gate=gate) for number in range(20)]
        until(lambda: any(one.done() for one in asked), "somebody is told to come back")
        gate.touch()
        answers = [one.result(PATIENCE) for one in asked]
    assert sorted({answer.status_code for answer in answers}) == [201, 409]
    assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 409)
    assert len([who for who in servers[0].paid(key) if who != "after"]) == 1
    assert servers[1].pay(key, gate=gate).status_code == 201


def test_a_client_that_does_not_wait(servers: list[Server], key: str) -> None:
    """It closes its connection in the middle; the work goes on, is done once, and its response is there."""
    with pytest.raises(httpx.ReadTimeout):
        servers[0].client.post(
            "/pay",
            params={"id": key, "pause": "0.3", "gate": ""},
            content="5",
            headers={"Idempotency-Key": key},
            timeout=httpx.Timeout(PATIENCE, read=0.1),
        )
    until(lambda: servers[1].pay(key, 0.3).status_code == 201, "it is done")
    assert servers[1].pay(key, 0.3).headers["idempotency-replayed"] == "true"
    assert len([who for who in servers[0].paid(key) if who != "after"]) == 1


def test_a_frozen_server(servers: list[Server], key: str, tmp_path: Path) -> None:
    """It sleeps past its ttl, and another serves the repetition: its own client is told to ask again when it wakes."""
    (one, two, _), gate = servers, tmp_path / "gate"
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(one.pay, key, gate=gate)
        until(lambda: one.paid(key) != [], "it is at work")
        freeze(one.process.pid)
        gate.touch()
        until(lambda: two.pay(key, gate=gate).status_code == 201, "another has served it")
        os.kill(one.process.pid, signal.SIGCONT)
        refused = late.result(PATIENCE)
    assert refused.status_code == 503 and refused.json()["type"] == "urn:leasehold:interrupted"
    assert one.pay(key, gate=gate).json()["by"] == two.process.pid


def test_a_killed_server(servers: list[Server], key: str) -> None:
    """SIGKILL in the middle: others are told 409 until the ttl has passed, and then serve it."""
    one, _, victim = servers
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(victim.pay, key, 30)
        until(lambda: victim.paid(key) != [], "it is at work")
        victim.process.kill()
        with pytest.raises(httpx.TransportError):
            cut.result(PATIENCE)
    assert one.pay(key, 30, body="6").status_code == 422
    seen, asked = set(), {"id": key, "pause": "30", "gate": ""}

    def served() -> bool:
        patience = httpx.Timeout(PATIENCE, read=0.5)  # when it is being served, the payment takes its time
        with contextlib.suppress(httpx.ReadTimeout):
            seen.add(
                one.client.post(
                    "/pay", params=asked, content="5", headers={"Idempotency-Key": key}, timeout=patience
                ).status_code
            )
        return len(one.paid(key)) == 2

    until(served, "the ttl has passed", PATIENCE)
    assert seen <= {409}
