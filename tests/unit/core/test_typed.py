"""Our NamedTuple is that of ``typing`` to whoever uses it, and is made without loading it."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold._core import light_typing
from leasehold._core.light_typing import FIRST


class Ours(light_typing.NamedTuple):
    """A tuple with a default, and a method."""

    owner: str
    fence: int = 7

    def shown(self) -> str:
        """As people see it."""
        return f"{self.owner}#{self.fence}"


class Theirs(typing.NamedTuple):
    """The same."""

    owner: str
    fence: int = 7


class Checked(Ours):
    """Somebody's own, with a way of its own to be made."""

    def __new__(cls, owner: str, fence: int = 1) -> Checked:
        """Without spaces."""
        return super().__new__(cls, owner.strip(), fence)


class Plain(light_typing.NamedTuple):
    owner: str
    fence: int


class Empty(light_typing.NamedTuple):
    """Nothing at all."""


WRONG: list[tuple[list[Any], dict[str, Any]]] = [
    ([], {}), (["a", 1, 2], {}), (["a"], {"owner": "b"}), (["a"], {"what": 1}),
]  # fmt: skip


@pytest.mark.parametrize("often", [1, FIRST + 2], ids=["the first", "one of many"])
def test_made_in_every_way(often: int) -> None:
    """By place, by name, with defaults; whether it is compiled already or not."""
    for _ in range(often):
        assert Ours("a") == Ours("a", 7) == Ours(owner="a", fence=7) == Ours("a", fence=7) == ("a", 7)
        assert Empty() == ()
        for values, named in WRONG:
            with pytest.raises(TypeError):
                Ours(*values, **named)


def test_as_the_one_of_typing() -> None:
    """Fields, defaults, replacing, showing, matching, hints."""
    ours: Any = Ours("a", 1)
    theirs: Any = Theirs("a", 1)
    assert (ours, ours.owner, ours.fence, ours.shown()) == (theirs, "a", 1, "a#1")
    assert (Ours._fields, Ours._field_defaults) == (Theirs._fields, Theirs._field_defaults)
    assert Ours.__match_args__ == Theirs.__match_args__
    assert (ours._asdict(), ours._replace(fence=2)) == (theirs._asdict(), theirs._replace(fence=2))
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert Ours._make(["b", 3]) == ("b", 3)
    assert typing.get_type_hints(Ours) == {"owner": str, "fence": int}
    assert (Ours.__name__, Ours.__module__, Ours.__doc__) == ("Ours", __name__, "A tuple with a default, and a method.")
    assert Plain.__doc__ == "Plain(owner, fence)"
    assert not hasattr(ours, "__dict__")
    with pytest.raises(ValueError, match="what"):
        ours._replace(what=1)
    with pytest.raises(AttributeError):
        ours.owner = "b"


@pytest.mark.parametrize("often", [1, FIRST + 2], ids=["the first", "one of many"])
def test_a_subclass_has_the_fields_of_its_base(often: int) -> None:
    """And keeps its own ways, however many are made."""
    for _ in range(often):
        made = Checked(" a ")
        assert (made, made.fence, made.shown(), Checked._fields) == (("a", 1), 1, "a#1", Ours._fields)
        assert type(made._replace(fence=2)) is Checked


def test_made_of_too_little() -> None:
    """A tuple with fewer places than names is none."""
    with pytest.raises(TypeError):
        Ours._make(["a"])


def test_copied_and_pickled() -> None:
    """They travel between processes."""
    ours = Ours("a", 1)
    for twin in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):  # noqa: S301  # our own
        assert (twin, type(twin)) == (ours, Ours)


def test_a_lock_loads_no_typing(tmp_path: Path) -> None:
    """What a short command cannot afford is not loaded for a lock on the embedded store."""
    heavy = {
        "typing",
        "re",
        "json",
        "enum",
        "pathlib",
        "datetime",
        "socket",
        "signal",
        "subprocess",
        "logging",
        "urllib",
    }
    code = f"""
import sys
sys.path.insert(0, {str(Path(leasehold.__file__).parents[1])!r})
import leasehold
with leasehold.connect("sqlite:///light.db") as hold, hold.lock("job"):
    print(sorted(set(sys.modules) & {heavy!r}))
"""
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=30)
    assert done.stdout == "[]\n"


START = f"""
import sys
sys.path.insert(0, {str(Path(leasehold.__file__).parents[1])!r})
"""


def test_a_command_runs_without_collections(tmp_path: Path) -> None:
    """``threading`` and ``_sqlite3`` import functools, and with it collections: not for ``leasehold run``."""
    code = f"""{START}
from leasehold.cli import main
sys.argv = "leasehold --url sqlite:///light.db run job -- true".split()
main()
"""
    command = [sys.executable, "-I", "-S", "-X", "importtime", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=30)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert loaded >= {"threading", "_sqlite3", "leasehold.cli.supervisor"}
    assert loaded.isdisjoint({"typing", "re", "enum", "collections", "functools", "click"})


def test_functools_is_itself_again(tmp_path: Path) -> None:
    """Only what is loaded for ``leasehold run`` gets the C parts alone; whoever imports it later gets all of it."""
    code = f"""{START}
from leasehold.cli.run import load_without_functools
load_without_functools("sqlite:")
assert "functools" not in sys.modules and {{"threading", "_sqlite3"}} <= sys.modules.keys()
import functools, sqlite3, threading
assert sqlite3.connect(":memory:").execute("select 1").fetchall() == [(1,)]
assert getattr(threading, "functools", functools).reduce is functools.reduce
load_without_functools("sqlite:")
assert sys.modules["functools"] is functools
"""
    command = [sys.executable, "-I", "-S", "-c", code]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=30)
