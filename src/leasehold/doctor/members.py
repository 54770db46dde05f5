"""The members of a store, asked at the same time: several that are away take no longer than one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

MOST_AT_ONCE = 16

T = TypeVar("T")
R = TypeVar("R")


class Away(Exception):
    """It cannot be reached, does not let us in, or stopped answering. The text says why."""


# As the errors of all stores say it, and etcd where it is asked without a store.
LOGIN_REFUSED = (
    "does not accept this user",
    "authentication failed",  # etcd itself
    "user name is empty",
    "does not accept this login",
    "refused the login",
    "wants a password",
    "requires a user",
    "requires a login",
)
LOGIN_FIX = "Correct the user and the password in the URL: it is up, and only the login is refused"


def login_refused(error: object) -> bool:
    """Whether a server answers, and does not let us in."""
    return any(words in str(error) for words in LOGIN_REFUSED)


def fix(error: object, otherwise: str) -> str:
    """What to do about a member that is of no use for that reason."""
    return LOGIN_FIX if login_refused(error) else otherwise


def together(members: Sequence[T], ask: Callable[[T], R]) -> list[R | Away]:
    """What ``ask`` gives for each of them, or why not."""
    with ThreadPoolExecutor(max_workers=min(max(len(members), 1), MOST_AT_ONCE)) as pool:
        return list(pool.map(lambda one: _attempt(ask, one), members))


def _attempt(ask: Callable[[T], R], member: T) -> R | Away:
    try:
        return ask(member)
    except Away as error:
        return error
