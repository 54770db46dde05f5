"""Parts of the standard library for a fast start: SQLite and sockets, without what a short command does not use.

``sqlite3`` adds adapters for dates, and loads ``datetime`` for them; ``socket`` makes enums. The C modules below do the
work.
"""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    import sqlite3
else:
    try:
        import _socket as socket
        import _sqlite3 as sqlite3
    except ImportError:
        import socket
        import sqlite3

__all__ = ["datagram_socket", "sqlite3", "suppress"]


def datagram_socket() -> socket.socket:
    """A Unix socket. What makes it was loaded with this module: a process that has changed its user since may not be
    able to load anything, nor one that was forked while another thread was loading."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


class suppress:  # noqa: N801  # as it is called in contextlib
    """Ignores these errors, as that of contextlib does."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)
