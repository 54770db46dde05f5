"""``--metrics-file`` and ``--metrics-port`` of ``leasehold run``, ``elect`` and ``cron``.

A thread serves the page and writes the file now and then. It is stopped while the process of a command is made: that is
forked, and a copy of a process with one thread is a safe one. Meanwhile connections wait in the backlog of the socket.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING

from leasehold.cli.output import CommandEnded, ExitCode, Output

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from leasehold.cli.arguments import RunRequest
    from leasehold.cli.run_outcome import RunOutcome

WRITE_EVERY = 15.0  # seconds, as often as most Prometheus servers look
CLIENT_PATIENCE = 2.0  # seconds to send a request, and to read the page: no command is started while a client is served
MISSING = "--metrics-file and --metrics-port need prometheus-client: pip install 'leasehold[prometheus]'"


def open_metrics(request: RunRequest, output: Output) -> CommandMetrics:
    """What the request asks for. 78 when it cannot be had, before anything is sent to the store."""
    try:
        return CommandMetrics(request.metrics_file, request.metrics_port, output)
    except ModuleNotFoundError as error:
        raise CommandEnded(ExitCode.CONFIG, "failed", MISSING) from error


class CommandMetrics:
    """The metrics of one command, in a registry of their own."""

    def __init__(self, path: str | None, address: tuple[str, int] | None, output: Output) -> None:
        from leasehold.observe.prometheus import PrometheusObserver

        self._registry = _registry()
        self.observer = PrometheusObserver(self._registry)
        self._output = output
        self._path = None if path is None else _checked(os.path.abspath(path))
        self._listener = None if address is None else _listener(address)
        self._due = time.monotonic() + WRITE_EVERY
        self._woken, self._wake = os.pipe()
        self._thread: threading.Thread | None = None
        if self._listener is not None:
            host, port = self._listener.getsockname()[:2]
            output.record("metrics", host=host, port=port)
        self.resume()

    def outcome_of(self, name: str) -> RunOutcome:
        """The gauges that say how a run ends."""
        from leasehold.cli.run_outcome import RunOutcome

        return RunOutcome(self._registry, name, self._path)

    def pause(self) -> None:
        """Stop the thread, until ``resume``."""
        thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._wake, b"x")
            thread.join()

    def resume(self) -> None:
        self._thread = threading.Thread(target=self._work, name="leasehold-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the file for the last time, and serve no more. That the file cannot be written does not change the exit
        code of the command."""
        self.pause()
        if self._listener is not None:
            self._listener.close()
        if self._path is not None:
            self._write(self._path)
        os.close(self._wake)
        os.close(self._woken)

    def _work(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if self._listener is not None:
                selector.register(self._listener, selectors.EVENT_READ)
            while True:
                left = None if self._path is None else max(self._due - time.monotonic(), 0.0)
                ready = [key.fileobj for key, _ in selector.select(left)]
                if self._woken in ready:
                    os.read(self._woken, 1)
                    return
                if self._listener is not None and self._listener in ready:
                    _serve(self._listener, self._registry)
                if self._path is not None and time.monotonic() >= self._due:
                    self._write(self._path)

    def _write(self, path: str) -> None:
        """In one step: a collector that looks meanwhile reads the old file or the new one, never a part."""
        from prometheus_client import generate_latest

        self._due = time.monotonic() + WRITE_EVERY
        try:
            with open(_temporary(path), "wb") as file:
                file.write(generate_latest(self._registry))
            os.replace(_temporary(path), path)
        except OSError as error:
            self._output.report("warning", _unwritable(path, error))


def _registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, disable_created_metrics

    disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter, which nobody reads
    return CollectorRegistry()


# ---------------------------------------------------------------- the file


def _checked(path: str) -> str:
    """The path, if a file can be made beside it. The file of the last command stays as it is until there is a new
    one."""
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(21, os.strerror(21))
        with open(_temporary(path), "wb"):
            pass
        os.unlink(_temporary(path))
    except OSError as error:
        raise CommandEnded(ExitCode.CONFIG, "failed", _unwritable(path, error)) from error
    return path


def _temporary(path: str) -> str:
    """In the same folder, so that it can be renamed; collectors read only names that end with .prom."""
    return f"{path}.{os.getpid()}.tmp"


def _unwritable(path: str, error: OSError) -> str:
    return f"the metrics cannot be written to {path}: {error.strerror}"


# ---------------------------------------------------------------- the port


def _listener(address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        listener = socket.create_server(address, family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        text = f"the metrics cannot be served on {host} port {port}: {error.strerror}"
        raise CommandEnded(ExitCode.CONFIG, "failed", text) from error
    listener.setblocking(False)  # a client may go away before it is accepted
    return listener


def _serve(listener: socket.socket, registry: CollectorRegistry) -> None:
    """Answer one client, in bounded time. Whatever it asks for, it gets the page: there is no other."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    try:
        client, _ = listener.accept()
        with client:
            client.settimeout(CLIENT_PATIENCE)
            if client.recv(65536).startswith(b"GET "):
                body = generate_latest(registry)
                head = f"HTTP/1.0 200 OK\r\nContent-Type: {CONTENT_TYPE_LATEST}\r\nContent-Length: {len(body)}\r\n\r\n"
                client.sendall(head.encode() + body)
            else:
                client.sendall(b"HTTP/1.0 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\n\r\n")
    except OSError:  # a client that went away is no concern of ours
        return
