"""A member that does not let us in is told apart from one that is away."""

from __future__ import annotations

from leasehold.doctor.members import LOGIN_FIX, Away, fix
from leasehold.stores.etcd import failures as etcd
from leasehold.stores.postgresql import failures as postgresql
from leasehold.stores.redis import failures as redis
from leasehold.stores.zookeeper import failures as zookeeper


def test_the_login_is_the_reason() -> None:
    """In the words of every store; another reason keeps its own fix."""
    refused = [
        redis.NO["WRONGPASS"],
        redis.NO["NOAUTH"],
        postgresql.TEXTS["28P01"],
        postgresql.TEXTS["28"],
        *[said for pair in etcd.TEXTS.items() if "user name" in pair[0] or "password" in pair[0] for said in pair],
        str(zookeeper.login_refused("ZooKeeper at host")),
    ]
    assert {fix(Away(f"the server {text}"), "Start it") for text in refused} == {LOGIN_FIX}
    assert fix(Away("Connection refused"), "Start it") == "Start it"
