"""The examples of the documents are programs: what can be run in a page runs in order, as it is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import leasehold
from tests.docs import databases
from tests.docs.blocks import PAGES, ROOT, RUN, blocks, faults, runs
from tests.support.servers.certificates import Certificates
from tests.support.servers.redis import RedisServer

LEAST_BLOCKS = 6
LONGEST = 150.0
# Where a page says that its server is, and what of the test's server stands in for that.
ADDRESSES = {
    "redis://localhost:6379/0": "url",
    "rediss://localhost:6380/0": "tls_url",
    "unix:///run/redis/redis.sock?db=0": "unix_url",
}
# The same for Sentinels.
SENTINELS = {
    "redis+sentinel://s1,s2,s3/leases": "url",
    '[("s1", 26379), ("s2", 26379), ("s3", 26379)]': "addresses",
}
CLUSTER = "redis+cluster://localhost:7000,localhost:7001"
# In a URL, for another client or on a command line: the fixture that gives the server.
ENSEMBLES = {"localhost:2379": "etcd_of_page", "localhost:2181": "zookeeper_of_page"}
ELSEWHERE = re.compile(
    r"(?:redis|unix|valkey)s?(?:[+]cluster)?://|(?:postgresql|mysql|mariadb)\S*://(?!app:secret@/)"
    r"|(?:etcds?|zk)://\w|localhost|\b(?:Redis|Valkey)\(|redis-cli (?!-u )"
)
SENDS_NOTHING = "README.md"  # it makes a coordinator for a server, and does not use it


def name(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


def running(page: Path) -> str:
    """What of a page is run."""
    return "".join(block.code for block in blocks(page.read_text(encoding="utf-8")) if block.language in RUN)


def needs_a_server(page: Path) -> bool:
    """Does it name an address for which a server stands in?"""
    return name(page) != SENDS_NOTHING and any(
        written in running(page) for written in (*ADDRESSES, *SENTINELS, CLUSTER, *ENSEMBLES, *databases.ADDRESSES)
    )


ALONE = [name(page) for page in PAGES if runs(page) and not needs_a_server(page)]
# Those that start programs, import much or wait: the quick tests see the others, and of the first page what it is for.
TAKE_LONG = {
    "README.md", "docs/guards/README.md", "docs/guards/http.md", "docs/guards/memory.md", "docs/guards/s3.md",
    "docs/guards/your-own.md", "docs/howto/elect.md", "docs/howto/fork.md", "docs/howto/gevent.md",
    "docs/howto/look.md", "docs/howto/run.md", "docs/howto/testing.md",
}  # fmt: skip
WITH_A_SERVER = [name(page) for page in PAGES if needs_a_server(page)]


def run(page: Path, folder: Path, replaced: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """In a process, a state folder and a working folder of its own. Warnings are errors."""
    copy, text = folder / page.name, page.read_text(encoding="utf-8")
    for written, real in (replaced or {}).items():
        text = text.replace(written, real)
    copy.write_text(text, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.docs.play", copy.name],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that what a page starts can be ended with it
    ) as player:
        try:
            printed, errors = player.communicate(timeout=LONGEST)
        finally:
            end(player.pid)
    return subprocess.CompletedProcess(player.args, player.returncode, printed, errors)


def environment(folder: Path) -> dict[str, str]:
    """Nothing of ours from outside; this library, and the commands that are installed beside this Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    return {
        **kept,
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": os.pathsep.join([str(Path(leasehold.__file__).parents[1]), str(ROOT)]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


def end(group: int) -> None:
    """End whatever is left of a page."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page in TAKE_LONG)) for page in ALONE])
def test_examples_run_as_written(page: str, tmp_path: Path) -> None:
    """Whoever types what a page says gets what it says; a failure names the line of the page."""
    for _ in range(2 if page in AGAIN else 1):
        done = run(ROOT / page, tmp_path)
        assert done.returncode == 0, f"an example of {page} failed:\n{done.stderr}"


AGAIN = ("README.md", "docs/tutorial.md")  # the first pages of most readers: these are run twice in one folder
MADE = re.compile(r"CREATE TABLE (?!IF NOT EXISTS)(\w+)")


def programs(page: str) -> list[str]:
    """What of a page is one program, and those that it writes to files."""
    parts = [block for block in blocks((ROOT / page).read_text(encoding="utf-8")) if block.language in RUN]
    return ["".join(one.code for one in parts if not one.title), *(one.code for one in parts if one.title)]


def made_once(code: str) -> list[str]:
    """The tables that a second run in the same folder would stumble over."""
    found = [] if ":memory:" in code else MADE.findall(code)
    return [one for one in found if f"DROP TABLE IF EXISTS {one}" not in code]


@pytest.mark.parametrize("page", [*ALONE, *WITH_A_SERVER])
def test_examples_can_be_run_again(page: str) -> None:
    """A table that is made is not there yet, or may be; a folder, too."""
    assert [one for code in programs(page) for one in made_once(code)] == []
    assert ".mkdir()" not in running(ROOT / page)


def test_what_can_be_run_once_is_found() -> None:
    """The check above can fail."""
    assert made_once('db.execute("CREATE TABLE reports (id INTEGER)")') == ["reports"]


FILE = re.compile(r"(?<![/\w])[\w-]+\.db\b")  # in the folder where one is
COLUMNS = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(([^\")]*)")


def tables_in_files(codes: Mapping[str, list[str]]) -> dict[tuple[str, str], dict[str, set[str]]]:
    """For each table of each file: which pages make it, by the columns that they give it. The file is the one that the
    program has named last."""
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for page, several in codes.items():
        for code in several:
            for made in COLUMNS.finditer(code):
                for file in FILE.findall(code[: made.start()])[-1:]:
                    found.setdefault((file, made[1]), {}).setdefault(made[2], set()).add(page)
    return found


def test_pages_do_not_stumble_over_each_other() -> None:
    """Whoever reads on tries the next page in the same folder: no two make a table of one file in different ways."""
    tables = tables_in_files({page: programs(page) for page in [*ALONE, *WITH_A_SERVER]})
    assert {where: pages for where, pages in tables.items() if len(pages) > 1} == {}
    assert len(tables) > 3


def test_pages_that_stumble_are_found() -> None:
    """The check above can fail."""
    one, other = (f'sqlite3.connect("a.db").execute("CREATE TABLE t ({column})")' for column in ("x", "y"))
    assert tables_in_files({"one": [one], "other": [other]}) == {("a.db", "t"): {"x": {"one"}, "y": {"other"}}}


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_A_SERVER)
def test_examples_run_on_a_server(
    page: str,
    tmp_path: Path,
    own_redis: Callable[..., RedisServer],
    certificates: Certificates,
    request: pytest.FixtureRequest,
) -> None:
    """The same for a page that needs a server: one stands in for each address that the page names."""
    server = own_redis(tls=certificates)
    shutil.copy(certificates.authority, tmp_path / "ca.pem")
    shutil.copy(certificates.client, tmp_path / "client.pem")
    replaced = {written: getattr(server, real) for written, real in ADDRESSES.items()}
    replaced.update(databases.stand_ins(running(ROOT / page), request))
    if any(written in running(ROOT / page) for written in SENTINELS):
        sentinel = request.getfixturevalue("redis_sentinel")
        replaced.update({written: str(getattr(sentinel, real)) for written, real in SENTINELS.items()})
    if CLUSTER in running(ROOT / page):
        replaced[CLUSTER] = request.getfixturevalue("redis_cluster").url
    for written, fixture in ENSEMBLES.items():
        if written in running(ROOT / page):
            replaced[written] = f"127.0.0.1:{request.getfixturevalue(fixture).port}"
    for _ in range(2 if page in AGAIN else 1):
        done = run(ROOT / page, tmp_path, replaced)
        assert done.returncode == 0, f"an example of {page} failed:\n{done.stderr}"


@pytest.mark.parametrize("page", [*ALONE, *WITH_A_SERVER])
def test_examples_turn_to_no_other_server(page: str) -> None:
    """Every URL in them is one that has a stand-in, so that none reaches a server which happens to be there."""
    assert elsewhere(running(ROOT / page)) == []


def elsewhere(code: str) -> list[str]:
    """What in this code leads to a server that has no stand-in."""
    for written in (*ADDRESSES, CLUSTER, *ENSEMBLES, *databases.ADDRESSES):
        code = code.replace(written, "")
    return ELSEWHERE.findall(code)


@pytest.mark.parametrize(
    "code",
    [
        "redis://localhost:6379/1",
        "postgresql://db.example/app",
        "mysql+pymysql://root@localhost:3306/app",
        'connect(host="localhost", user="app")',
        "etcd://db1,db2,db3",
        "zk://localhost/apps",
    ],
)
def test_an_address_without_a_stand_in_is_found(code: str) -> None:
    """Another server, another user, or no port: a page that says so fails."""
    assert elsewhere(code) != []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_runs_or_says_that_it_does_not(page: Path) -> None:
    """Nothing that looks like code is left out silently: each block has a language whose fate is declared."""
    assert faults(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_can_be_read(page: Path) -> None:
    """A block of TOML or JSON is one."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language in ("toml", "json"):
            (tomllib.loads if block.language == "toml" else json.loads)(block.code)


def test_the_first_page_shows_the_embedded_store(tmp_path: Path) -> None:
    """The first page has examples enough, and they use the store that one gets without naming one."""
    page = ROOT / "README.md"
    languages = [block.language for block in blocks(page.read_text(encoding="utf-8"))]
    assert languages.count("python") >= LEAST_BLOCKS
    assert run(page, tmp_path).returncode == 0
    assert (tmp_path / "state" / "leasehold" / "leasehold.db").stat().st_mode & 0o777 == 0o600
