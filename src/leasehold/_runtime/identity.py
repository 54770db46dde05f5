"""Owner tokens: ``<instance>:<pid>:<secret of this process>.<counter>``, unique for each acquisition.

The secret is drawn once for each process and again after a fork: a child must never act, or be mistaken,
for its parent (trap 32). Nothing is ever read from the environment but the instance's name (trap 45).
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from itertools import count

from leasehold._core.types import public_owner

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_PLAIN = str.maketrans("+/", "-_")
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
    instance = os.environ.get("LEASEHOLD_INSTANCE") or _host()
    clean = "".join(char if char in _SAFE else "-" for char in instance)[:64]
    secret = b2a_base64(os.urandom(16), newline=False).decode().rstrip("=").translate(_PLAIN)
    _prefix = f"{clean or 'unknown'}:{os.getpid()}:{secret}."


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")  # as Windows has it


def _forget() -> None:
    global _prefix
    _prefix = ""


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
