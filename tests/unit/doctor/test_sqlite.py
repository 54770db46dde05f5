"""The examination of the embedded store and of one in memory: the file, its mode, its file system."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from leasehold.doctor import sqlite
from leasehold.stores.sqlite import file
from tests.support.doctor import every_finding_helps, examined, found, only


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a file that a first examination has made."""
    place = tmp_path / "leases.db"
    examined(f"sqlite:///{place}")
    return place


def test_a_file_in_order(path: Path) -> None:
    """Nothing is wrong with one that was just made."""
    seen = examined(f"sqlite:///{path}")
    every_finding_helps(seen)
    assert {one.severity for one in seen.report.findings} <= {"ok", "note", "warning"} and seen.trial is not None
    assert all(seen.trial[1:]) and only(seen, "permissions").severity == "ok" and only(seen, "store").severity == "note"
    assert "0600" in only(seen, "permissions").text and "wal" in only(seen, "version").text


@pytest.mark.parametrize(("mode", "severity", "may"), [(0o644, "warning", "read"), (0o666, "problem", "write")])
def test_a_file_for_everybody(path: Path, mode: int, severity: str, may: str) -> None:
    """It holds owner tokens: the fix takes the rights away."""
    path.chmod(mode)
    finding = only(examined(f"sqlite:///{path}"), "permissions")
    assert finding.severity == severity and f"everybody may {may} it" in finding.text and "chmod 600" in finding.fix


@pytest.mark.parametrize(
    ("place", "mode", "lacking"),
    [("file", 0o600, "read and write it"), ("file", 0o644, "write it"), ("folder", 0o755, "make files")],
)
def test_a_file_of_another_user(
    place: str, mode: int, lacking: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode is in order, and nothing works for this user: that is a problem, with what to do."""
    path.chmod(mode if place == "file" else 0o660)
    path.parent.chmod(mode if place == "folder" else 0o2770)
    monkeypatch.setattr(sqlite, "_may", others_may)
    seen = found(examined(f"sqlite:///{path}"), "permissions")
    finding = seen["problem"]
    assert "ok" not in seen and lacking in finding.text and "2770" in finding.fix


def others_may(place: str, wanted: int) -> bool:
    """What the kernel would answer a user who is in the group of a folder or file with mode 66x or 277x, and else is
    anybody."""
    mode = Path(place).stat().st_mode
    granted = (mode >> 3 if mode & stat.S_IWGRP else mode) & 0o7
    return wanted & granted == wanted


def test_a_folder_for_everybody(path: Path) -> None:
    """Anybody may put another file in its place."""
    path.parent.chmod(0o777)
    assert "in its folder" in found(examined(f"sqlite:///{path}"), "permissions")["problem"].text


@pytest.mark.parametrize(
    ("kind", "severity"), [("nfs4", "problem"), ("overlay", "warning"), ("ext4", "ok"), ("", "note")]
)
def test_file_systems(path: Path, kind: str, severity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network, the layer of a container, a disk, one that the kernel hides."""
    monkeypatch.setattr(file, "mount", lambda real: ("/somewhere", kind))
    (finding,) = [one for one in sqlite.examine(str(path)) if one.check == "file system"]
    assert finding.severity == severity


def test_a_network_is_refused_and_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease can be taken there, and the examination says why; that is no server that is away."""
    (tmp_path / "leases.db").touch(0o600)
    monkeypatch.setattr(file, "mount", lambda real: ("/somewhere", "nfs4"))
    seen = examined(f"sqlite:///{tmp_path}/leases.db")
    assert seen.trial is None and seen.report.reachable
    assert "problem" in found(seen, "lease") and "problem" in found(seen, "file system")


def test_a_full_disk_and_a_large_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are found before they hurt."""
    monkeypatch.setattr(sqlite, "LEAST_FREE", 1 << 60)
    assert "problem" in found(examined(f"sqlite:///{path}"), "disk")
    monkeypatch.setattr(sqlite, "LEAST_FREE", 0)
    monkeypatch.setattr(sqlite, "LARGE_LOG", -1)
    assert "warning" in found(examined(f"sqlite:///{path}"), "disk")


def test_a_file_that_cannot_be_there(tmp_path: Path) -> None:
    """The store is away: a finding."""
    seen = examined(f"sqlite:///{tmp_path}/missing/leases.db")
    assert not seen.report.reachable and "problem" in found(seen, "reachable")


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    """Its mode is nobody's business: no advice to change it."""
    seen = examined(f"sqlite:///{tmp_path}")
    assert "it is a folder" in only(seen, "reachable").text and not found(seen, "permissions")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """It is left alone."""
    place = tmp_path / "leases.db"
    place.write_text("hello " * 1000)
    place.chmod(0o600)
    seen = examined(f"sqlite:///{place}")
    assert seen.trial is None and seen.report.reachable
    assert (only(seen, "file").severity, only(seen, "file").text) == ("problem", "it is no database")
    assert place.read_text().startswith("hello")


def test_memory() -> None:
    """Excludes nobody else: a warning."""
    assert only(examined("memory://"), "store").severity == "warning"
