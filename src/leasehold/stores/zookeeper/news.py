"""Texts for whoever listens at an address: the data of a node that goes with the listener's session.

The data is a list of the last texts, each with a number: a watch fires once, and a second text may come before it is
set again. A text that is pushed out of the list before it is read is lost: they are hints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError
from kazoo.protocol.states import EventType

from leasehold._core.light_typing import Any
from leasehold.observe import log
from leasehold.stores.record.requests import Tell
from leasehold.stores.zookeeper import calls, failures
from leasehold.stores.zookeeper.calls import Call, NotSent
from leasehold.stores.zookeeper.rounds import Lost
from leasehold.stores.zookeeper.tree import Tree

KEPT = 16  # texts
ATTEMPTS = 10  # against others who tell at the same time


def tell(tree: Tree, request: Tell) -> Generator[list[Call], None, bool]:
    """Whether somebody listens there."""
    path = tree.names.address(request.address)
    for _ in range(ATTEMPTS):
        read = calls.get(path)
        yield [read]
        found = tree.answer(read, NoNodeError)
        if found is None:
            return False
        data, stat = found
        write = calls.change(path, _added(data, request.text), stat.version)
        yield [write]
        try:
            write.result()
        except NoNodeError:
            return False
        except BadVersionError:
            continue
        except NotSent as error:
            raise Lost from error
        except failures.BROKEN as error:
            raise failures.unknown(tree.server, error) from error
        except ZookeeperError as error:
            raise failures.refusal(tree.server, error) from error
        return True
    raise Lost


def _texts(data: bytes) -> list[tuple[int, str]]:
    try:
        return [(int(number), str(text)) for number, text in json.loads(data or b"[]")]
    except (ValueError, TypeError):  # somebody else's
        return []


def _added(data: bytes, text: str) -> bytes:
    texts = _texts(data)
    number = texts[-1][0] + 1 if texts else 1
    return json.dumps([*texts, (number, text)][-KEPT:]).encode()


class Hearing:
    """The node of one address, kept in every session until it is closed. All but ``close`` runs on the thread that
    receives, or before there is a connection."""

    def __init__(self, tree: Tree, address: str, receive: Callable[[str], None], closed: Callable[[Hearing], None]):
        self._tree = tree
        self._path = tree.names.address(address)
        self._receive = receive
        self._on_close = closed
        self._closed = False
        self._last = 0  # the number of the last text that was received

    def close(self) -> None:
        self._closed = True
        self._on_close(self)
        if self._tree.session.connected:
            self._tree.session.send([calls.removal(self._path)])

    def join(self) -> None:
        """There is a connection, maybe of a new session."""
        self._send(calls.creation(self._path, b"[]", self._tree.acl), self._created)

    def _created(self, call: Call) -> None:
        try:
            call.result()
        except NodeExistsError:
            pass
        except Exception as error:  # there is no tree yet, or no connection: it is made again then
            log.debug("%s: no news yet: %r", self._tree.server, error)
            return
        else:
            self._last = 0
        self._read()

    def _read(self) -> None:
        self._send(calls.get(self._path, self._event), self._found)

    def _found(self, call: Call) -> None:
        try:
            data, stat = call.result()
        except NoNodeError:
            self.join()
            return
        except Exception as error:  # as above
            log.debug("%s: no news: %r", self._tree.server, error)
            return
        if stat.ephemeralOwner != self._tree.session.current():  # of an earlier session, and soon gone with it
            self._send(calls.removal(self._path), lambda _: self.join())
            return
        for number, text in _texts(data):
            if number > self._last:
                self._last = number
                self._deliver(text)

    def _event(self, event: Any) -> None:
        if event.type != EventType.NONE:
            self._read()

    def _deliver(self, text: str) -> None:
        try:
            self._receive(text)
        except Exception as error:  # it is a caller's: the thread that receives must go on
            log.debug("a receiver of news failed: %r", error)

    def _send(self, call: Call, then: Callable[[Call], None]) -> None:
        if self._closed:
            return
        call.finished = lambda: then(call)
        self._tree.session.send([call])
