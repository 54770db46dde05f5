"""The list of members that an ensemble keeps."""

from __future__ import annotations

from leasehold.stores.zookeeper.ensemble import addresses
from tests.support.tables import each

LINES = {
    "server.1=zk1:2888:3888:participant;10.0.0.1:2181": (("10.0.0.1", 2181),),
    "server.12=zk1:2888:3888:observer;0.0.0.0:2182": (("zk1", 2182),),
    "server.1=zk1:2888:3888;2181": (("zk1", 2181),),
    "server.1=zk1:2888:3888|zk1b:2889:3889:participant;0.0.0.0:2181": (("zk1", 2181),),
    "server.1=[fd00::1]:2888:3888:participant;[0:0:0:0:0:0:0:0]:2181": (("fd00::1", 2181),),
    "server.1=[fd00::1]:2888:3888:participant;[fd00::2]:2181": (("fd00::2", 2181),),
    # Without a port for clients, as in a configuration that is never changed.
    "server.1=zk1:2888:3888:participant": (),
    "version=100000002": (),
    "": (),
    "server.1=;\ngroup.1=1:2": (),
}


@each("text, found", LINES.items())
def test_where_members_serve_clients(text: str, found: tuple[tuple[str, int], ...]) -> None:
    """Their own address, unless there is one for clients that leads somewhere."""
    assert addresses(text) == found
