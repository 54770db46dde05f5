"""A server that says it is an old Redis: no such program is at hand, and its first words are all that is needed."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hiredis

VERSION_6_0 = "6.0.16"  # has HELLO
VERSION_5_0 = "5.0.14"  # has not


class Impostor(socketserver.ThreadingTCPServer):
    """Answers HELLO and INFO as that version does, and nothing else; remembers what it was asked."""

    daemon_threads = True

    def __init__(self, version: str) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.version = version
        self.asked: list[str] = []
        self.url = f"redis://127.0.0.1:{self.server_address[1]}"

    def answer(self, command: list[bytes]) -> bytes:
        """In the protocol's own bytes."""
        name = command[0].decode().upper()
        self.asked.append(name)
        if name == "HELLO" and self.version >= "6":
            fields = [b"server", b"redis", b"version", self.version.encode(), b"mode", b"standalone"]
            return b"%3\r\n" + b"".join(bulk(field) for field in fields)
        if name == "INFO":
            return bulk(f"# Server\r\nredis_version:{self.version}\r\nredis_mode:standalone\r\n".encode())
        return f"-ERR unknown command `{name}`, with args beginning with: \r\n".encode()


class Conversation(socketserver.BaseRequestHandler):
    """With one client, until it hangs up."""

    server: Impostor

    def handle(self) -> None:
        """One answer for each command."""
        reader: Any = hiredis.Reader()
        while data := self.request.recv(4096):
            reader.feed(data)
            while (command := reader.gets()) is not False:
                self.request.sendall(self.server.answer(command))


def bulk(text: bytes) -> bytes:
    """A string as Redis sends it."""
    return b"$%d\r\n%s\r\n" % (len(text), text)


@contextmanager
def impostor(version: str) -> Iterator[Impostor]:
    """It serves until the end of the block."""
    with Impostor(version) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
