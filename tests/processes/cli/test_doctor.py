"""``leasehold doctor`` as users run it: what it prints, its exit codes, files and URLs that it is given.

A process of its own is started once for each kind of ending; the rest is typed in the process of the test.
"""

from __future__ import annotations

import json
import os
import pty
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from leasehold.cli import doctor
from leasehold.doctor import Examination, answers
from leasehold.doctor.report import Report, warning
from tests.support.cli.desk import SOON, Desk
from tests.support.cli.typed import Typed, typed

pytestmark = pytest.mark.slow
FOUND = {"/metrics": 200, "/private": 200, "/elsewhere": 302}
LOGIN = "YW5uOnMzL2NyZXQ="  # ann:s3/cret
BAD = 'leasehold_unguarded_total{kind="payment"} 7\n'


def examined(desk: Desk, *more: str) -> Typed:
    """Typed here, about the store of the desk."""
    return typed("doctor", "--url", desk.url, *more)


def test_a_store_in_order(desk: Desk) -> None:
    """Each finding in a line, plain in a pipe; the summary at the end; 0."""
    done = desk.run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"sqlite: {desk.folder}/leases.db\n") and "\x1b" not in done.stdout
    assert "\nok       lease: leases can be taken" in done.stdout and "0 problems, " in done.stdout.splitlines()[-1]


def test_a_problem(desk: Desk) -> None:
    """1, in words and in JSON; the document has everything."""
    desk.hold.ping()  # makes it
    desk.path("leases.db").chmod(0o666)
    done = desk.run("doctor")
    assert done.returncode == 1 and "\nproblem  permissions: its mode is 0666" in done.stdout
    code, out, _ = examined(desk, "--json")
    document = json.loads(out)
    assert (code, document["store"], document["worst"]) == (1, "sqlite", "problem")
    assert document["reachable"] is True and 0 < document["latency"]["p50"] <= document["latency"]["p99"]
    assert {"severity", "check", "text", "reason", "fix", "place"} == document["findings"][0].keys()
    assert "checklist" not in document


def test_a_store_that_is_away_and_a_bad_url(desk: Desk) -> None:
    """69 with a report, and without the password; 78 without one."""
    code, out, _ = typed("doctor", "--url", "redis://:s3cret@127.0.0.1:1", "--json")
    assert (code, json.loads(out)["reachable"]) == (69, False)
    done = desk.run("doctor", "--url", "redis://:s3cret@127.0.0.1:1")
    assert (
        done.returncode == 69 and "\nproblem  reachable: " in done.stdout and "s3cret" not in done.stdout + done.stderr
    )
    code, out, err = typed("doctor", "--url", "redis://host:x")
    assert (code, out) == (78, "") and "bad host or port" in err


def test_metrics_from_a_file_and_from_standard_input(desk: Desk) -> None:
    """Anti-patterns are findings of the same report."""
    desk.path("metrics").write_text(BAD)
    code, out, _ = examined(desk, "--metrics", str(desk.path("metrics")))
    assert code == 1 and "\nproblem  no fencing: payment: 7 leases" in out
    done = desk.run("doctor", "--metrics", "-", "--json", stdin=BAD)
    assert "no fencing" in [one["check"] for one in json.loads(done.stdout)["findings"]]


@pytest.fixture
def scraped() -> Iterator[str]:
    """The address of a program that exposes metrics."""

    class Metrics(BaseHTTPRequestHandler):
        """Of one anti-pattern."""

        def do_GET(self) -> None:
            """Prometheus asks like this. One page wants a login, which the page that leads there does not pass on."""
            wants = self.path == "/private" and self.headers["Authorization"] != f"Basic {LOGIN}"
            self.send_response(401 if wants else FOUND.get(self.path, 404))
            self.send_header("Location", "/private")
            self.end_headers()
            self.wfile.write(BAD.encode())

        def log_message(self, *words: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_metrics_from_a_url(desk: Desk, scraped: str) -> None:
    """As Prometheus scrapes them; one that is not there is wrong usage."""
    assert "no fencing: payment" in examined(desk, "--metrics", scraped).out
    code, out, err = examined(desk, "--metrics", scraped + "x")
    assert (code, out) == (2, "") and "Not Found" in err
    assert examined(desk, "--metrics", "http://127.0.0.1:1/").code == 2


def test_metrics_behind_a_login(desk: Desk, scraped: str) -> None:
    """It may stand in the URL, is sent to that server alone, and is never printed."""
    private = scraped.replace("http://", "http://ann:s3%2Fcret@").replace("/metrics", "/private")
    assert "no fencing: payment" in examined(desk, "--metrics", private).out
    for wrong in (
        private.replace("cret", "crets"),
        private.replace("private", "elsewhere"),
        private.replace("%2F", "/"),
        "http://ann:s3cret@host:99999x/",
        "http://ann:s3cret@a b/",
    ):
        code, out, err = examined(desk, "--metrics", wrong)
        assert (code, out) == (2, "") and "s3" not in err and "cret" not in err


def test_metrics_of_a_server_that_does_not_speak_http(desk: Desk) -> None:
    """Such as SSH: wrong usage, in one sentence."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            with server.accept()[0] as line:
                line.recv(65536)
                line.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        code, out, err = examined(desk, "--metrics", f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
    assert (code, out) == (2, "") and err.count("\n") == 1


def test_the_checklist(desk: Desk) -> None:
    """Sixteen points; a point that fails is 1; only problems and warnings of the store stand above them."""
    code, out, _ = examined(desk, "--checklist")
    assert code == 0 and "\n16  only you can know  a runbook" in out and "\nok " not in out
    desk.path("answers.toml").write_text("runbook = false\nfenced = 'in the orders table'\n")
    code, out, _ = examined(desk, "--checklist", "--answers", str(desk.path("answers.toml")))
    assert code == 1 and "\n16  fail " in out and "in the orders table" in out
    done = desk.run("doctor", "--checklist", "--answers", "-", "--json", stdin='{"runbook": false}')
    points = json.loads(done.stdout)["checklist"]
    assert done.returncode == 1 and [one["number"] for one in points] == list(range(1, 17))
    assert points[15]["verdict"] == "fail"


def test_what_several_servers_have_is_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is printed once, with all their places."""
    findings = tuple(warning("disk", "it is slow", "why", "fix").at(place) for place in ("a:1", "b:2"))
    doctor._print(Examination(Report("cluster", "here", findings), None), [], False)
    shown = capsys.readouterr().out
    assert "disk: it is slow [a:1, b:2]" in shown and shown.endswith("\n0 problems, 1 warning, 0 notes\n")


def test_what_the_checklist_counts_it_shows() -> None:
    """A warning of the store is printed, and notes are neither printed nor counted."""
    out = typed("doctor", "--checklist", "--url", "memory://").out
    *_, last = out.splitlines()
    assert last == "0 problems, 1 warning, 5 pass, 0 fail, 11 only you can know"
    assert [line.split()[0] for line in out.splitlines() if line[:1].isalpha()][1:] == ["warning"]


def test_the_checklist_of_a_store_that_is_away() -> None:
    """What could not be tried is called so, in words and for programs; 69."""
    code, out, _ = typed("doctor", "--checklist", "--url", "redis://127.0.0.1:1")
    assert code == 69 and "\n 2  not tried          owner unique" in out and out.endswith(", 4 not tried\n")
    _, out, _ = typed("doctor", "--checklist", "--url", "redis://127.0.0.1:1", "--json")
    assert [one["number"] for one in json.loads(out)["checklist"] if one["verdict"] == "not tried"] == [1, 2, 3, 4]


def test_the_template() -> None:
    """Can be given back as it is; nothing is examined for it."""
    code, out, err = typed("doctor", "--answers-template", "--url", "redis://127.0.0.1:1")
    assert (code, err) == (0, "") and answers.parse(out) == {}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--answers", "answers"], "add --checklist"),
        (["--checklist", "--answers", "missing"], "missing: No such file"),
        (["--checklist", "--answers", "bad"], "bad: there is no answer called 'levitate'"),
        (["--metrics", "missing"], "missing: No such file"),
        (["--metrics", "bad"], "bad: line 1 is no sample"),
        (["somewhere"], "unexpected extra argument"),
    ],
)
def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], why: str) -> None:
    """One sentence, 2, before anything is sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_text("levitate = true\n")
    code, out, err = typed("doctor", *arguments, "--url", f"sqlite:///{tmp_path}/untouched.db")
    assert (code, out) == (2, "") and why in err
    assert not (tmp_path / "untouched.db").exists()


def test_on_a_terminal(desk: Desk) -> None:
    """Severities are painted, unless NO_COLOR is set."""
    for environment, painted in (
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
    ):
        above, below = pty.openpty()
        process = desk.start("doctor", stdout=below, env=environment)
        os.close(below)
        text = b""
        while True:
            try:
                chunk = os.read(above, 65536)
            except OSError:  # the other side is closed
                break
            text += chunk
            if not chunk:
                break
        assert process.wait(SOON) == 0 and (b"\x1b[32mok" in text) is painted
        os.close(above)
