"""Files and paths: which processes share a lock, and which do not."""

from __future__ import annotations

import pytest

from tests.support.workers.crew import Crew


@pytest.mark.slow
def test_two_files_are_two_locks(crew: Crew) -> None:
    """The same name in another file is another lock."""
    a, b = crew.spawn(), crew.spawn(url=f"sqlite:///{crew.folder}/another.db")
    assert a.ask("acquire", kind="job", wait=0)["fence"]
    assert b.ask("acquire", kind="job", wait=0)["fence"]
    assert crew.spawn().ask("acquire", kind="job", wait=0)["fence"] is None


@pytest.mark.slow
def test_a_relative_path_is_the_same_file(crew: Crew) -> None:
    """Workers start in the folder of the file: a relative URL means what an absolute one means."""
    a, b = crew.spawn(), crew.spawn(url="sqlite:///leases.db")
    assert a.ask("acquire", kind="job", wait=0)["fence"]
    assert b.ask("acquire", kind="job", wait=0)["fence"] is None


def test_chdir_does_not_move_the_file(crew: Crew) -> None:
    """What ``connect`` was given is found from where it was given."""
    (crew.folder / "elsewhere").mkdir()
    a, b = crew.spawn(url="sqlite:///leases.db"), crew.spawn()
    a.ask("chdir", folder="elsewhere")
    assert a.ask("acquire", kind="job", wait=0)["fence"]
    assert b.ask("acquire", kind="job", wait=0)["fence"] is None
    b.tell("acquire", kind="job")
    crew.waiting("job", 1)
    assert a.ask("release")["released"] and b.hear()["fence"]
    assert not list((crew.folder / "elsewhere").iterdir())
    assert a.ask("acquire", kind="job", wait=0)["fence"] is None


@pytest.mark.slow
def test_a_symbolic_link_is_the_same_file(crew: Crew) -> None:
    """Two paths of one file are one lock, and wake-ups find their way."""
    a = crew.spawn()
    a.ask("acquire", kind="job")
    (crew.folder / "link.db").symlink_to(crew.path)
    b = crew.spawn(url=f"sqlite:///{crew.folder}/link.db")
    b.ask("beat_rarely")  # it must be woken
    assert b.ask("acquire", kind="job", wait=0)["fence"] is None
    b.tell("acquire", kind="job", ttl=30)
    crew.waiting("job", 1)
    assert a.ask("release")["released"] and b.hear()["fence"]
