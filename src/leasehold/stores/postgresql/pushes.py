"""Pushes as notifications: ``NOTIFY channel, payload``.

An address is ``<channel>.<number>``: the channel is that of a process, the number one of its threads, event loops or
coordinators; a coordinator's is followed by another dot and the place of the process. The channel of a process is
``leasehold_`` and 16 hexadecimal digits, which are also the number of an advisory lock: the session that listens has
it, so that others see whether it does.
"""

from __future__ import annotations

import os

from leasehold._core.ops import Push
from leasehold.stores import state_text

PREFIX = "leasehold_"
MOST_BYTES = 7_900  # PostgreSQL takes less than 8,000


def new_channel() -> str:
    """It cannot be guessed: a client that knew it could wake a waiter for nothing."""
    return PREFIX + os.urandom(8).hex()


def channel(address: str) -> str:
    return address.partition(".")[0]


def encode(push: Push) -> tuple[str, str]:
    """The channel and the payload. One that is too long only wakes whoever it is for."""
    payload = state_text.text(push)
    if len(payload) > MOST_BYTES:
        payload = state_text.text([push.address])
    return channel(push.address), payload


def decode(payload: str) -> tuple[str, Push | None]:
    """The address and the push; None in its place for one that only wakes. An address is empty when it is none of
    ours."""
    try:
        address, *fields = state_text.parse(payload)
        if not fields:
            return str(address), None
        push = Push._make((address, *fields[:-2], tuple(fields[-2]), fields[-1]))
    except (ValueError, TypeError, IndexError):
        return "", None
    known = [str, str, str, str, int, int, int, tuple, int]
    return (push.address, push) if [type(one) for one in push] == known else ("", None)
