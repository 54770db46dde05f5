"""A place on etcd or on ZooKeeper, and what is done there below the store."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import ANY, Change, Join, Look, Part, Record, Server
from leasehold.stores.zookeeper.server import ZooKeeper

PATIENCE = 10.0  # seconds


class Both:
    """The URL of a store."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.port = urlsplit(url).port or 0

    def through(self, port: int) -> str:
        """The same behind a proxy."""
        return self.url.replace(f":{self.port}", f":{port}")

    def records(self) -> Server:
        """Another process, as far as the server can tell."""
        return EtcdRecords.from_url(self.url) if self.name == "etcd" else ZooKeeper(self.url)


def perform(records: Server, request: Any) -> Any:
    """The reply; an error is raised."""
    (reply,) = records.perform((request,), time.monotonic() + PATIENCE)
    if isinstance(reply, Exception):
        raise reply
    return reply


def look(records: Server, resource: str) -> Record:
    """The record as it is, with its places."""
    record: Record = perform(records, Look((resource,))).records[0]
    return record


def write(records: Server, resource: str, text: str) -> None:
    """Whatever is there is replaced."""
    assert perform(records, Change((Part(resource, look(records, resource).revision, text),))).done


def join(records: Server, resource: str, owner: str) -> None:
    """A place of another process."""
    assert perform(records, Change((Part(resource, ANY, join=Join(owner, "")),))).done
