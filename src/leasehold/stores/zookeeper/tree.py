"""The tree below the chroot: whose it is, and how it is made.

The chroot is made by whoever comes first. A node that is there already is taken over only if it is empty, or says that
it is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kazoo.exceptions import NodeExistsError, NoNodeError, ZookeeperError
from kazoo.protocol.serialization import Create, SetData
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from leasehold._core.light_typing import Any
from leasehold.stores.zookeeper import calls, failures
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.names import BUCKETS, MARK, Names
from leasehold.stores.zookeeper.rounds import Lost, Work
from leasehold.stores.zookeeper.session import Session
from leasehold.stores.zookeeper.target import Target


class Tree:
    """What all requests of a store share."""

    def __init__(self, target: Target, session: Session) -> None:
        self.session = session
        self.names = Names(target.chroot)
        self.server = target.server
        self.acl: Sequence[Any] = CREATOR_ALL_ACL if target.acl == "creator" else OPEN_ACL_UNSAFE
        # By bucket, as it was once; too low a number makes a change fail, which then learns the new one.
        self.removals: dict[str, int] = {}
        self.on_prepared: Callable[[], None] = lambda: None  # the tree is there; it was not, maybe

    def prepare(self) -> Work:
        """Once for each session: check that the tree is ours, make it if it is missing, and read the server's clock by
        making the node of the session."""
        chroot = self.names.chroot
        node = calls.get(chroot)
        below = calls.children(chroot)
        yield [node, below]
        found = self.answer(node, NoNodeError)
        if found is None or found[0] != MARK:
            names = self.answer(below, NoNodeError)
            if found is not None and (found[0] or names):
                raise failures.foreign(self.server, chroot)
            yield from self._make(None if found is None else found[1].version)
            self.on_prepared()
        session = self.session.current()
        own = calls.own_node(self.names.sessions, self.acl, self.session.current)
        yield [own]
        made = self.answer(own, NodeExistsError)  # it exists when the connection broke meanwhile
        if made is not None:
            self.session.set_clock(made[1].ctime)
        self.session.prepared = session
        self.session.follow_members()

    def _make(self, version: int | None) -> Work:
        """``version``: of an empty chroot that is there already."""
        names = self.names
        if version is None:
            parts = names.chroot.split("/")[1:-1]
            for count in range(1, len(parts) + 1):
                parent = calls.transaction([Create("/" + "/".join(parts[:count]), b"", self.acl, 0)])
                yield [parent]
                self._accept(parent)
            first: Any = Create(names.chroot, MARK, self.acl, 0)
        else:
            first = SetData(names.chroot, MARK, version)
        folders = [names.records, names.news, names.sessions, *[f"{names.records}/{one}" for one in BUCKETS]]
        call = calls.transaction([first, *[Create(folder, b"", self.acl, 0) for folder in folders]])
        yield [call]
        self.removals.clear()
        if not self._accept(call):
            raise Lost  # another process was faster: look again whose it is

    def _accept(self, call: Call) -> bool:
        """False when the node is there already."""
        refused = calls.refusal(self.answer(call))
        if refused is None:
            return True
        if isinstance(refused[1], failures.CONDITIONS):
            return False
        raise failures.refusal(self.server, refused[1])

    def answer(self, call: Call, *expected: type[Exception]) -> Any:
        """The result of a call that may be repeated; None for an error that is expected. Raises Lost or
        StoreUnavailable."""
        try:
            return call.result()
        except expected:
            return None
        except failures.BROKEN as error:
            raise Lost from error
        except ZookeeperError as error:
            raise failures.refusal(self.server, error) from error
