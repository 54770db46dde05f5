"""A stand-in for S3: moto behind a real HTTP port, in a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any, Self

from tests.support.servers import process
from tests.support.waiting import PATIENCE, until

APP = Path(__file__).with_name("s3_app.py")
STARTS_WITHIN = 40.0  # seconds: moto imports a lot, and the machine may be busy


class S3Server:
    """A server of its own, on its own port. ``modes`` are those of ``s3_app.py``: without "lock" moto as it comes."""

    def __init__(self, *modes: str) -> None:
        self._modes = modes
        self._place = process.reserve()
        self.port: int = self._place.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[Any] = []
        self._numbers = count(1)

    def client(self, url: str | None = None, **config: Any) -> Any:
        """A client of boto3, closed when the server stops. One try for each request, unless ``config`` says more."""
        made = client(url or self.url, **config)
        self._clients.append(made)
        return made

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"bucket-{next(self._numbers)}"
        self._clients[0].create_bucket(Bucket=name)
        return name

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="s3-", dir=process.home()))
        command = [sys.executable, str(APP), str(self.port), *self._modes]
        self._process = process.start(command, folder, folder / "server.log", {})
        until(self._answers, f"the server answers; its log:\n{folder}/server.log", STARTS_WITHIN)
        self.client()
        return self

    def __exit__(self, *failure: object) -> None:
        while self._clients:
            self._clients.pop().close()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
        self._place.close()


def client(url: str, **config: Any) -> Any:
    """A client of boto3 for a server at this address."""
    import boto3
    from botocore.config import Config

    settings = {"retries": {"total_max_attempts": 1}, "max_pool_connections": 20, **config}
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(s3={"addressing_style": "path"}, **settings),
    )
