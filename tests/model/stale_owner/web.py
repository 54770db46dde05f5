"""Counters of an HTTP service that has a guard at its door."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from leasehold._core import headers
from leasehold.errors import OutcomeUnknown
from leasehold.guards.fence import Fenced
from leasehold.guards.http import check_response
from tests.model.stale_owner.targets import Target, Write, nothing
from tests.support.servers import process
from tests.support.servers.server import Server

PATIENCE = 60.0


class HttpTarget(Target):
    """A client that sends the headers of its lease, with a connection for each request."""

    def __init__(self, url: str) -> None:
        self.place = urlsplit(url).netloc

    def read(self, lease: Fenced) -> int:
        """GET, with the fence."""
        return int(self.ask(lease, "GET", lease.resource))

    def write(self, lease: Fenced, value: int, note: str, midway: Callable[[], None] = nothing) -> None:
        """PUT, with the fence. Midway its headers are there and its body is not."""
        body = json.dumps({"value": value, "note": note}).encode()
        self.ask(lease, "PUT", lease.resource, body, midway)

    def ask(
        self, lease: Fenced | None, method: str, path: str, body: bytes = b"", midway: Callable[[], None] = nothing
    ) -> Any:
        """One request. Who has sent it and hears no answer does not know."""
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE)
        try:
            connection.putrequest(method, f"/{path}")
            for name, text in {**presented(lease), "Content-Length": str(len(body))}.items():
                connection.putheader(name, text)
            connection.endheaders()
            midway()
            connection.send(body)
            response = connection.getresponse()
            status, answer = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise OutcomeUnknown("no answer") from error
        finally:
            connection.close()
        if lease is not None:
            check_response(status, answer, lease)
        assert status == 200, (status, answer)
        return json.loads(answer)

    def prepare(self, resource: str) -> None:
        """A counter that nobody has asked for stands at 0."""
        assert self.value(resource) == 0

    def value(self, resource: str) -> int:
        """GET, without a fence."""
        return int(self.ask(None, "GET", resource))

    def history(self, resource: str) -> list[Write]:
        """As the service remembers it."""
        return [Write(*one) for one in self.ask(None, "GET", f"{resource}?history")]

    def close(self) -> None:
        """Nothing is open."""


def presented(lease: Fenced | None) -> dict[str, str]:
    """The headers of a lease, or of a bare fence."""
    if lease is None:
        return {}
    if hasattr(lease, "headers"):
        sent: dict[str, str] = lease.headers()
        return sent
    assert lease.fence is not None and lease.owner is not None
    return headers.encode(lease.fence, lease.resource, lease.owner)


class Service(Server):
    """The service, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = process.reserve()
        self.port = self._place.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        how = ["--port", str(self.port), "--lifespan", "off", "--no-access-log", "--log-level", "warning"]
        return [sys.executable, "-m", "uvicorn", "tests.model.stale_owner.service:app", *how]

    def _environment(self) -> dict[str, str]:
        root = Path(__file__).parents[3]
        return {"PYTHONPATH": f"{root / 'src'}:{root}"}

    def _answers(self) -> bool:
        try:
            return HttpTarget(self.url).value("ready") == 0
        except OutcomeUnknown:
            return False

    def stop(self) -> None:
        """Gone."""
        self.kill()
        self._place.close()
