"""Requests in both flavours, and the few that most tests begin with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Change, Join, Look, Part, Place, Record, Request
from tests.support.waiting import PATIENCE

Perform = Callable[..., Any]
Connect = Callable[[str], EtcdRecords]


# For what takes a server of its own, or an election: in this flavour always, in the other one in the soak.
mostly_threads, mostly_asyncio = (
    pytest.mark.parametrize("perform", [one, pytest.param(other, marks=pytest.mark.soak)], indirect=True)
    for one, other in (("threads", "asyncio"), ("asyncio", "threads"))
)


def in_thread(records: EtcdRecords, *requests: Request, seconds: float = PATIENCE) -> Any:
    """On this thread."""
    replies = records.perform(requests, time.monotonic() + seconds)
    return replies if len(requests) > 1 else replies[0]


def in_loop(records: EtcdRecords, *requests: Request, seconds: float = PATIENCE) -> Any:
    """On an event loop of its own."""
    replies = asyncio.run(records.perform_async(requests, time.monotonic() + seconds))
    return replies if len(requests) > 1 else replies[0]


def look(records: EtcdRecords, resource: str, texts: bool = False) -> Record:
    """The record as it is."""
    found: Record = in_thread(records, Look((resource,), texts)).records[0]
    return found


def write(records: EtcdRecords, resource: str, text: str, revision: int = 0) -> Record:
    """The record after a change that must succeed."""
    outcome = in_thread(records, Change((Part(resource, revision, text),)))
    assert outcome.done
    found: Record = outcome.records[0]
    return found


def join(records: EtcdRecords, resource: str, owner: str) -> Place:
    """The place that was made at the end of the queue."""
    found = look(records, resource)
    outcome = in_thread(records, Change((Part(resource, found.revision, join=Join(owner, f"I am {owner}")),)))
    assert outcome.done
    place: Place = next(place for place in outcome.records[0].places if place.owner == owner)
    return place


def owners(records: EtcdRecords, resource: str) -> list[str]:
    """Who waits, in order."""
    return [place.owner for place in look(records, resource).places or ()]
