"""Owner tokens: ``<instance>:<pid>:<secret of this process>.<counter>``, unique for each acquisition.

The secret is drawn once for each process and again after a fork: a child must never act, or be mistaken,
for its parent (trap 32). Nothing is ever read from the environment but the instance's name (trap 45).
"""

from __future__ import annotations

import os
from itertools import count

from leasehold._core.types import public_owner

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_SECRET_BITS = 128
_prefix = ""
_counter = count(1)


def new_owner() -> str:
    """A token that was never used before."""
    if not _prefix:
        _draw()
    return f"{_prefix}{next(_counter)}"


def process_prefix() -> str:
    """The public part of every owner of this process: ``<instance>:<pid>``."""
    if not _prefix:
        _draw()
    return public_owner(_prefix)


def _draw() -> None:
    global _prefix
    instance = _clean(os.environ.get("LEASEHOLD_INSTANCE") or _host())
    number = int.from_bytes(os.urandom(_SECRET_BITS // 8))
    # As base64 would write it, without a module to load.
    secret = "".join([_DIGITS[number >> shift & 63] for shift in range(0, _SECRET_BITS, 6)])
    _prefix = f"{instance}:{os.getpid()}:{secret}."


def host_instance() -> str:
    """The instance of the processes of this host, where no environment names another."""
    return _clean(_host())


def _clean(instance: str) -> str:
    return "".join(char if char in _SAFE else "-" for char in instance)[:64] or "unknown"


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")  # as Windows has it


def _forget() -> None:
    global _prefix
    _prefix = ""


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
