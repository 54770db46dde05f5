"""What ``import leasehold`` gives: exactly the pinned names, documented, typed, and cheap to load."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import leasehold
from leasehold import errors
from leasehold.coordinator.base import Coordinator
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import BaseLock
from tests.support.tables import each

SOURCE = Path(leasehold.__file__).parent

NAMES = [
    "SKIPPED",
    "All",
    "AsyncAll",
    "AsyncElection",
    "AsyncLease",
    "AsyncLeaseBatch",
    "AsyncLeasehold",
    "AsyncLeases",
    "AsyncLock",
    "AsyncPermit",
    "AsyncReadLock",
    "AsyncReadWriteLease",
    "AsyncReadWriteLock",
    "AsyncSemaphore",
    "AsyncTerm",
    "AsyncWriteLock",
    "Backoff",
    "Election",
    "Eviction",
    "Guarantee",
    "Guarantees",
    "Holder",
    "Inspection",
    "InvalidRequest",
    "Leader",
    "Lease",
    "LeaseBatch",
    "LeaseLost",
    "Leasehold",
    "LeaseholdError",
    "Leases",
    "Lock",
    "Need",
    "NotAcquired",
    "NotHeld",
    "Note",
    "OutcomeUnknown",
    "Permit",
    "ReadLock",
    "ReadWriteLease",
    "ReadWriteLock",
    "Semaphore",
    "Skipped",
    "StaleOwner",
    "StoreUnavailable",
    "Term",
    "Unsupported",
    "Verdict",
    "Waiting",
    "WriteLock",
    "advise",
    "aio",
    "bucket",
    "connect",
]
ERRORS: dict[str, tuple[type, ...]] = {
    "NotAcquired": (TimeoutError,),
    "LeaseLost": (),
    "StaleOwner": (),
    "NotHeld": (RuntimeError,),
    "StoreUnavailable": (ConnectionError,),
    "OutcomeUnknown": (ConnectionError,),
    "Unsupported": (),
    "InvalidRequest": (ValueError,),
}
LATER = {
    leasehold.Lock: ["read", "write", "resize"],
}
LEASE = {
    "acquired_at", "beat", "check", "deadline", "exported", "extend", "fence", "guarded", "headers", "log_context",
    "lost", "meta", "on_lost", "on_revoked", "owner", "release", "remaining", "resource", "revoked", "state",
    "transfer", "ttl",
}  # fmt: skip


def public(thing: object) -> set[str]:
    """The names of a class or module that do not begin with an underscore."""
    return {name for name in dir(thing) if not name.startswith("_")}


def modules() -> list[ModuleType]:
    """Every module of the product that can be imported without an extra."""
    found = pkgutil.walk_packages(leasehold.__path__, "leasehold.")
    names = [one.name for one in found if not one.name.startswith(("leasehold.cli", "leasehold.__main__"))]
    return [leasehold, *[importlib.import_module(name) for name in names]]


def fresh(code: str) -> str:
    """What a new interpreter prints that has nothing but the standard library and src."""
    program = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})\n{code}"
    command = [sys.executable, "-I", "-S", "-c", program]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=30).stdout


def test_all_is_sorted_and_exact() -> None:
    """``__all__`` is the pinned list, constants first and the rest in order, and every name in it is there."""
    assert leasehold.__all__ == NAMES == sorted(NAMES, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(leasehold, name) for name in NAMES)


def test_aio_has_one_name() -> None:
    """The asyncio flavour adds ``connect`` and nothing else."""
    assert leasehold.aio.__all__ == ["connect"]


def test_nothing_else_looks_public() -> None:
    """What is visible beside ``__all__`` are submodules, not stray imports."""
    extra = public(leasehold) - set(NAMES)
    strays = {name for name in extra if not isinstance(getattr(leasehold, name), ModuleType)}
    assert strays <= {"annotations"}


@each("name", ERRORS)
def test_the_error_tree(name: str) -> None:
    """Each error stands where it is drawn, and is re-exported."""
    error = getattr(errors, name)
    assert error is getattr(leasehold, name)
    assert error.__bases__ == (errors.LeaseholdError, *ERRORS[name])
    assert sorted(errors.__all__) == sorted(["LeaseholdError", *ERRORS])


@pytest.mark.parametrize(("thing", "names"), LATER.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_names_of_later_issues_are_absent(thing: object, names: list[str]) -> None:
    """A name that a later issue brings is absent until then, never a stub."""
    assert not [name for name in names if hasattr(thing, name)]


def test_the_lease_has_every_pinned_member() -> None:
    """Every member of a lease, and what tells it that somebody asks for it; no more and no less."""
    assert public(leasehold.Lease) == public(leasehold.AsyncLease) == LEASE


def test_the_election_has_every_pinned_member() -> None:
    """What an election and a term have, no more and no less."""
    names = {"campaign", "leader", "observe", "on_demoted", "on_elected", "resign", "resource"}
    assert public(leasehold.Election) == public(leasehold.AsyncElection) == names
    assert public(leasehold.Term) == public(leasehold.AsyncTerm) == {*LEASE, "publish", "term", "value"}


def test_the_lock_and_the_coordinator() -> None:
    """What a lock and a coordinator have, no more and no less."""
    assert public(leasehold.Lock) == {"acquire", "locked", "owned", "release", "resource", "try_acquire"}
    assert public(leasehold.Semaphore) == public(leasehold.Lock) | {"available", "resize"}
    assert public(leasehold.Permit) == LEASE | {"slot", "slot_resource", "slot_resources", "slots"}
    assert public(leasehold.Leasehold) == {
        "acquire_many", "adopt", "all", "close", "closed", "cron", "election", "evict", "guarantees", "inspect",
        "leaks", "lock", "locked", "namespace", "once", "ping", "release_many", "revoke", "rlock", "rwlock", "scan",
        "semaphore", "single_flight", "store",
    }  # fmt: skip
    batch = {"acquired", "complete", "count", "failed", "index", "refused", "release"}
    assert public(leasehold.LeaseBatch) == public(leasehold.AsyncLeaseBatch) == batch


def test_the_read_write_lock() -> None:
    """Two sides with every form of a lock, whose leases have two members more."""
    assert public(leasehold.ReadWriteLock) == {"read", "resource", "write"}
    assert public(leasehold.ReadLock) == public(leasehold.WriteLock) == public(leasehold.Lock)
    assert public(leasehold.ReadWriteLease) == {*LEASE, "downgrade", "shared"}


def test_the_parameters_of_lock() -> None:
    """The pinned parameters with their defaults."""
    parameters = inspect.signature(leasehold.Leasehold.lock).parameters
    defaults = {name: one.default for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert repr(defaults.pop("wait")) == "<the coordinator's>"
    assert defaults == {
        "ttl": 30,
        "renew": True,
        "max_hold": None,
        "max_idle": None,
        "at_least": None,
        "delay": None,
        "linger": 0,
        "reentrant": False,
        "protects": None,
        "meta": None,
        "durability": None,
    }


def test_import_is_light() -> None:
    """``import leasehold`` loads neither asyncio, sqlite3, logging nor inspect, and nothing of a third party."""
    code = """
before = set(sys.modules)
import leasehold
loaded = set(sys.modules) - before
roots = {name.partition(".")[0] for name in loaded}
slow = {"asyncio", "sqlite3", "logging", "concurrent", "socket", "urllib", "subprocess", "inspect", "random", "hashlib"}
print(sorted(roots & slow))
print(sorted(roots - set(sys.stdlib_module_names) - {"leasehold"}))
"""
    assert fresh(code).splitlines() == ["[]", "[]"]


def test_a_lock_on_threads_never_loads_asyncio() -> None:
    """The sync flavour runs without an event loop: not even the module is there."""
    code = """
import leasehold
with leasehold.connect("memory://") as hold, hold.lock("job", 1) as lease:
    lease.check()
print("asyncio" in sys.modules, "sqlite3" in sys.modules)
"""
    assert fresh(code).split() == ["False", "False"]


def test_it_is_typed() -> None:
    """``py.typed`` says that the annotations are meant."""
    assert (SOURCE / "py.typed").is_file()


def test_the_version_is_the_projects() -> None:
    """``__version__`` and pyproject agree."""
    text = (SOURCE.parent.parent / "pyproject.toml").read_text()
    assert f'version = "{leasehold.__version__}"' in text


def documented() -> list[tuple[str, object]]:
    """Every public object with a name for the report."""
    things: list[tuple[str, object]] = [(name, getattr(leasehold, name)) for name in NAMES]
    things.append(("aio.connect", leasehold.aio.connect))
    things += [("Backoff.call", leasehold.Backoff.call), ("Backoff.acall", leasehold.Backoff.acall)]
    for cls in (leasehold.Leasehold, leasehold.AsyncLeasehold, Coordinator, leasehold.Lock, leasehold.AsyncLock,
                BaseLock, leasehold.Lease, leasehold.AsyncLease, BaseLease, leasehold.Semaphore,
                leasehold.AsyncSemaphore, leasehold.Permit, leasehold.AsyncPermit, leasehold.ReadWriteLock,
                leasehold.AsyncReadWriteLock, leasehold.ReadWriteLease, leasehold.AsyncReadWriteLease,
                leasehold.Election, leasehold.AsyncElection, leasehold.Term, leasehold.AsyncTerm):  # fmt: skip
        things += [(f"{cls.__name__}.{name}", inspect.getattr_static(cls, name)) for name in public(cls)]
    return things


def test_every_public_object_has_a_docstring() -> None:
    """Whoever types ``help`` is told something."""
    assert not [name for name, thing in documented() if not (getattr(thing, "__doc__", None) or "").strip()]


@each("module", modules(), ids=lambda module: module.__name__)
def test_every_module_says_its_job(module: ModuleType) -> None:
    """A file says its job in the first line of its docstring."""
    assert module.__doc__ is not None and module.__doc__.strip()


@pytest.mark.slow
def test_the_examples_in_docstrings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every doctest of the product runs as written, and there are some."""
    monkeypatch.chdir(tmp_path)  # some make files
    results = [doctest.testmod(module) for module in modules()]
    assert sum(result.attempted for result in results) >= 4
    assert not sum(result.failed for result in results)
