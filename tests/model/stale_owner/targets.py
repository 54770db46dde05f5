"""What the stale-owner model harms: a counter for each resource, behind one kind of guard.

A target is opened from a plain description, in every worker process and in the test itself, so all of them share one
counter. Whoever brings a guard writes a class here or beside it and names it in ``KINDS``:

    class MyTarget(Target):
        def __init__(self, url: str, **extra: Any) -> None: ...           # opens its own client
        def prepare(self, resource: str) -> None: ...                     # in the test: a counter at 0
        def read(self, lease: Fenced) -> int: ...                         # presents the fence, then reads
        def write(self, lease: Fenced, value: int, note: str, midway=nothing) -> None: ...

Leases come as ``Lease`` or as a bare ``Fencing``: both have ``resource``, ``fence`` and ``owner``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from leasehold.guards.fence import Fenced


class Write(NamedTuple):
    """A write as the target itself remembers it. ``note`` is unique for each try."""

    fence: int
    value: int
    note: str


class Description(NamedTuple):
    """Where a target is; JSON can carry it to a worker."""

    kind: str
    url: str
    extra: dict[str, Any] = {}  # noqa: RUF012 # nobody writes to it


def nothing() -> None:
    """What happens midway, usually."""


class Target(ABC):
    """Guarded counters, one for each resource. What a guard raises goes through: StaleOwner above all."""

    one_step = False  # can check, read and write in one transaction: has ``add_one``
    impatient = False  # does not wait for somebody else's lock: says that it is taken, and is to be asked again
    optimistic = False  # a read is not remembered; a write is a Conflict when somebody has written since that read

    # ------------------------------------------------------------ in the workers

    @abstractmethod
    def read(self, lease: Fenced) -> int:
        """Present the fence, and only then read (trap 46). Raises StaleOwner."""

    @abstractmethod
    def write(self, lease: Fenced, value: int, note: str, midway: Callable[[], None] = nothing) -> None:
        """Check and write in one atomic step of the resource. Raises StaleOwner, and has then changed nothing.

        Where that step takes more than one message to the resource, ``midway`` is called between them."""

    def add_one(self, lease: Fenced, note: str, midway: Callable[[], None] = nothing) -> int:
        """Check, read and write in one transaction; ``midway`` is called after the read. The value written."""
        raise NotImplementedError(f"{type(self).__name__} has no transactions")

    # ------------------------------------------------------------ in the test

    @abstractmethod
    def prepare(self, resource: str) -> None:
        """Make everything that is needed, and a counter that stands at 0. Called once for each resource."""

    @abstractmethod
    def value(self, resource: str) -> int:
        """What the counter says, without any guard."""

    @abstractmethod
    def history(self, resource: str) -> list[Write]:
        """Every write that happened, in the order in which the target did them."""

    @abstractmethod
    def close(self) -> None:
        """Close the client."""


# kind: where its class is. Imported when it is opened: a worker loads the driver of its own target alone.
KINDS = {
    "sqlite": "tests.model.stale_owner.sql:SqliteTarget",
    "sql": "tests.model.stale_owner.sql_desks:DeskTarget",
    "redis": "tests.model.stale_owner.redis:RedisTarget",
    "http": "tests.model.stale_owner.web:HttpTarget",
    "s3": "tests.model.stale_owner.objects:S3Target",
    "unguarded": "tests.model.stale_owner.broken:Unguarded",
    "late": "tests.model.stale_owner.broken:Late",
    "apart": "tests.model.stale_owner.broken:Apart",
}


def open_target(description: Description) -> Target:
    """The target, wherever we are."""
    module, _, name = KINDS[description.kind].partition(":")
    target: Target = getattr(import_module(module), name)(description.url, **description.extra)
    return target
