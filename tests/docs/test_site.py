"""`make docs` builds a site that is whole: strict, with every page and every name, and readable without a network."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
]  # ten seconds, and minutes beside others
CONFIG = "tools/docs/mkdocs.yml"
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?((?:https?:)?//[^"'\s>]+)|<link[^>]+href=["']?(https?://\S+)"""
)


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` does, into a folder of the test."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", CONFIG, "--site-dir", str(site)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once, whichever of the processes that run tests comes first."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, whole = base / "site", base / "site.whole"
    with (base / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            done = build(ROOT, folder)
            assert done.returncode == 0, done.stdout + done.stderr
            whole.touch()
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    """At the place that it has in the repository, so that relative links hold on a Git host and in the site."""
    wanted = {page.relative_to(ROOT).with_suffix(".html").as_posix() for page in PAGES}
    wanted = {re.sub(r"README\.html$", "index.html", name) for name in wanted}
    assert {name for name in wanted if not (site / name).is_file()} == set()


def test_names_can_be_linked_to(site: Path) -> None:
    """Methods of base classes are there too, under the name that people know."""
    leases = (site / "docs/reference/leases.html").read_text(encoding="utf-8")
    for name in ("leasehold.Lease.check", "leasehold.Lease.extend", "leasehold.AsyncLease.lost"):
        assert f'id="{name}"' in leases


def test_examples_in_docstrings_are_code(site: Path) -> None:
    """What doctest runs is shown as a block of code, not as a quotation."""
    pages = [page.read_text(encoding="utf-8") for page in (site / "docs/reference").glob("*.html")]
    assert not [page for page in pages if "<blockquote>" in page]
    assert any('class="gp"' in page for page in pages)
    assert not [page for page in pages if ":func:" in page or "(trap " in page]


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    """No font, script or picture is fetched: it can be read on a plane."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES) // 2
    assert [found for page in pages for found in LOADED.findall(page.read_text(encoding="utf-8"))] == []


def test_the_search_knows_the_pages(site: Path) -> None:
    """There is an index, and what stands in a page is in it."""
    assert "Fences here jump" in (site / "search/search_index.json").read_text(encoding="utf-8")


def test_a_wrong_page_fails_the_build(tmp_path: Path) -> None:
    """Strict means strict: a broken link or anchor, or a page that the index does not list, ends the build."""
    shutil.copytree(ROOT / "tools" / "docs", tmp_path / "tools" / "docs")
    (tmp_path / "docs").mkdir()
    pages = {
        "README.md": "# First\n\n[no heading](docs/tutorial.md#no-such-heading) [no page](docs/nothing.md)\n",
        "CONTRIBUTING.md": "# Contributing\n",
        "CHANGELOG.md": "# Changelog\n",
        "docs/README.md": "# All\n\n## Tutorial\n\n- [Tutorial](tutorial.md)\n\n"
        "## Project\n\n- [Contributing](../CONTRIBUTING.md)\n- [Changelog](../CHANGELOG.md)\n",
        "docs/tutorial.md": "# Tutorial\n",
        "docs/unlisted.md": "# Unlisted\n",
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert [what for what in ("#no-such-heading", "nothing.md", "unlisted.md") if what not in done.stderr] == []
    assert "Aborted with 3 warnings" in done.stdout
