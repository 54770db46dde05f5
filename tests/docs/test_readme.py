"""The examples of the documents are programs: each page's Python blocks run in order, as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import leasehold
from tests.servers.certificates import Certificates
from tests.servers.redis import RedisServer

ROOT = Path(__file__).parents[2]
FENCE = "```"
LEAST_BLOCKS = 6
WITH_A_SERVER = ["docs/redis.md"]
# Where such a page says that its server is, and what of the test's server stands in for that.
ADDRESSES = {
    "redis://localhost:6379/0": "url",
    "rediss://localhost:6380/0": "tls_url",
    "unix:///run/redis/redis.sock?db=0": "unix_url",
}


def program(page: Path) -> tuple[str, int]:
    """The Python of a page, each line at its own number, so that a traceback names the line of the page; and how
    many blocks it has."""
    lines, blocks, language = [], 0, ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith(FENCE):
            language = "" if language else line.removeprefix(FENCE).strip() or "text"
            blocks += language == "python"
            lines.append("")
        else:
            lines.append(line if language == "python" else "")
    return "\n".join(lines) + "\n", blocks


def pages() -> list[str]:
    """The first page, and every other one that has Python in it and needs no server."""
    others = [page for page in sorted((ROOT / "docs").rglob("*.md")) if program(page)[1]]
    names = [str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *others]]
    return [name for name in names if name not in WITH_A_SERVER]


def run(page: Path, folder: Path, replaced: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """In a process, a state folder and a working folder of its own. Warnings are errors."""
    copy = folder / page.name
    code = program(page)[0]
    for written, real in (replaced or {}).items():
        code = code.replace(written, real)
    copy.write_text(code, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    return subprocess.run(
        [sys.executable, "-W", "error", copy.name],
        cwd=folder,
        env={**kept, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(Path(leasehold.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("page", pages())
def test_examples_run_as_written(page: str, tmp_path: Path) -> None:
    """Whoever types what a page says gets what it says; a failure names the line of the page."""
    done = run(ROOT / page, tmp_path)
    assert done.returncode == 0, f"an example of {page} failed:\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_A_SERVER)
def test_examples_run_on_a_server(
    page: str, tmp_path: Path, own_redis: Callable[..., RedisServer], certificates: Certificates
) -> None:
    """The same for a page that needs a server: one stands in for each address that the page names."""
    server = own_redis(tls=certificates)
    shutil.copy(certificates.authority, tmp_path / "ca.pem")
    shutil.copy(certificates.client, tmp_path / "client.pem")
    done = run(ROOT / page, tmp_path, {written: getattr(server, real) for written, real in ADDRESSES.items()})
    assert done.returncode == 0, f"an example of {page} failed:\n{done.stderr}"


@pytest.mark.parametrize("page", WITH_A_SERVER)
def test_examples_turn_to_no_other_server(page: str) -> None:
    """Every URL in them is one that has a stand-in, so that none reaches a server which happens to be there."""
    code = program(ROOT / page)[0]
    for written in ADDRESSES:
        assert written in code
        code = code.replace(written, "")
    assert re.findall(r"(?:redis|unix|valkey)s?://|localhost|\b(?:Redis|Valkey)\(", code) == []


def test_the_first_page_shows_the_embedded_store(tmp_path: Path) -> None:
    """The first page has examples enough, and they use the store that one gets without naming one."""
    page = ROOT / "README.md"
    assert program(page)[1] >= LEAST_BLOCKS
    assert run(page, tmp_path).returncode == 0
    assert (tmp_path / "state" / "leasehold" / "leasehold.db").stat().st_mode & 0o777 == 0o600


def test_a_failing_example_names_its_line(tmp_path: Path) -> None:
    """An example that is wrong is reported with the line of the page that it stands in."""
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```sh\nnot python\n```\n\n```python\nx = 1\nassert x == 2\n```\n", encoding="utf-8")
    (tmp_path / "run").mkdir()
    done = run(page, tmp_path / "run")
    assert done.returncode == 1
    assert 'page.md", line 9' in done.stderr
