"""A connection that is open before a given time, or not at all.

``psycopg.connect`` waits for two seconds at least, and so long for each host. That is longer than a renewal may take:
the thread that renews leases would come too late to say that one of them is lost.
"""

from __future__ import annotations

import math
import os
import select
import socket
import time
from collections.abc import Mapping

import psycopg
import psycopg.conninfo
from psycopg import pq

from leasehold._core.light_typing import Any, NamedTuple

READ, WRITE = 1, 4  # POLLIN and POLLOUT: Windows, which imports this as well, has no such names
LISTS = ("host", "hostaddr", "port")  # parameters of libpq that may name several places
MOST = 10.0  # seconds for one host, unless connect_timeout= says otherwise


class Connection(NamedTuple):
    """In place of psycopg's, which warns when an interrupt has kept it from being closed: this one closes itself."""

    pgconn: Any


def connect(parameters: Mapping[str, Any], give_up: float) -> Connection:
    """The first of the hosts that answers; each has its share of the time that is left. Raises psycopg.Error."""
    most = float(parameters.get("connect_timeout") or 0) or MOST
    places = [address for place in _places(parameters) for address in _addresses(place)]
    failure: psycopg.Error = psycopg.OperationalError("no host has an address")
    for number, place in enumerate(places):
        now = time.monotonic()
        share = (give_up - now) / (len(places) - number)
        try:
            return Connection(_connected(place, now + min(share, most)))
        except psycopg.OperationalError as error:
            failure = error
    raise failure


def _connected(place: Mapping[str, Any], until: float) -> Any:
    process = os.getpid()
    pg = pq.PGconn.connect_start(psycopg.conninfo.make_conninfo("", **place).encode())
    while True:
        if os.getpid() != process:  # a signal handler has forked, and this connection is the parent's
            raise psycopg.OperationalError("the process was forked meanwhile")
        state = pq.PollingStatus.FAILED if pg.status == pq.ConnStatus.BAD else pg.connect_poll()
        if state == pq.PollingStatus.OK:
            return pg
        if state == pq.PollingStatus.FAILED:
            text = pg.get_error_message()
            pg.finish()
            raise psycopg.OperationalError(text)
        if not _ready(pg.socket, READ if state == pq.PollingStatus.READING else WRITE, until - time.monotonic()):
            pg.finish()
            raise psycopg.OperationalError("the server does not answer in time")


def _ready(descriptor: int, events: int, seconds: float) -> bool:
    poll = select.poll()  # libpq may have another socket by the next time
    poll.register(descriptor, events)
    return bool(poll.poll(max(math.ceil(seconds * 1000), 0)))


def _places(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters for each host by itself: libpq alone would wait for the first as long as that stands still."""
    lists = {name: str(parameters[name]).split(",") for name in LISTS if parameters.get(name)}
    count = max([len(values) for name, values in lists.items() if name != "port"], default=1)
    return [
        {**parameters, **{name: values[min(number, len(values) - 1)] for name, values in lists.items()}}
        for number in range(count)
    ]


def _addresses(place: dict[str, Any]) -> list[dict[str, Any]]:
    """The same for each address of a host that has several. One that has none is left to libpq, which says why."""
    host = place.get("host")
    if not host or place.get("hostaddr") or host.startswith(("/", "@")):
        return [place]
    try:
        found = socket.getaddrinfo(host, place.get("port") or None, type=socket.SOCK_STREAM)
    except OSError:
        return [place]
    return [{**place, "hostaddr": address[0]} for *_, address in found]
