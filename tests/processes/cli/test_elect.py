"""``leasehold elect``: a command while leader, again and again, and how it ends."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.processes.cli.test_run_lost import evict
from tests.support.cli.desk import SOON, Desk, alive, pids
from tests.support.servers.process import reserve
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow

# It counts its terms, heeds TERM, and lasts.
LAST = "touch up; while :; do sleep 0.02; done"
POLITE = f"trap 'echo $LEASEHOLD_TERM >> stopped; exit 7' TERM; echo $LEASEHOLD_TERM >> terms; {LAST}"

AT_ONCE = ["--health-start-period", "0", "--health-retries", "1"]  # the first failure ends the term

SCHEDULER = """#!{python}
import http.server, pathlib
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        pathlib.Path("checked").touch()
http.server.HTTPServer(("127.0.0.1", {port}), Health).serve_forever()
"""


def standing(desk: Desk, *options: str, script: str = POLITE) -> subprocess.Popen[str]:
    """One that leads: its command is running."""
    process = desk.start("elect", "job", *options, "--", "sh", "-c", script)
    desk.until(desk.path("up").exists, process)
    return process


def terms(desk: Desk, name: str = "terms") -> list[int]:
    """Those that the command has seen."""
    path = desk.path(name)
    return list(pids(path)) if path.exists() else []


def test_a_command_that_ends_by_itself(desk: Desk) -> None:
    """We resign, and exit with its code; it knows its term, which is the fence, and everybody sees our value."""
    script = 'echo "$LEASEHOLD_TERM $LEASEHOLD_FENCE $LEASEHOLD_RESOURCE $LEASEHOLD_OWNER"; touch up; read line; exit 3'
    process = desk.start("elect", "job", "--value", '{"port": 80}', "--", "sh", "-c", script, stdin=subprocess.PIPE)
    desk.until(desk.path("up").exists, process)
    leader = desk.hold.election("job").leader()
    assert leader is not None and (leader.value, leader.ttl) == ({"port": 80}, 10)
    out, err = process.communicate("go\n", timeout=SOON)
    assert out == f"{leader.term} {leader.term} job {leader.owner}\n"
    assert (process.returncode, err) == (3, "")
    assert desk.hold.election("job").leader() is None


def test_a_lost_term_is_followed_by_another(desk: Desk) -> None:
    """The command is stopped, and runs again with a higher term when we lead again."""
    process = standing(desk, "--ttl", "2s")
    evict(desk)
    desk.until(lambda: len(terms(desk)) == 2, process)
    evict(desk)
    desk.until(lambda: len(terms(desk)) == 3, process)
    process.send_signal(signal.SIGTERM)
    code, _, err = desk.ended(process)
    assert code == 7 and err.count("is lost (evicted): the command is stopped") == 2
    assert terms(desk) == sorted(set(terms(desk))) == terms(desk, "stopped")


def test_once(desk: Desk) -> None:
    """``--once``: a lost term is the last one, and the exit code says so."""
    process = standing(desk, "--ttl", "1.5s", "--once")
    evict(desk)
    assert desk.ended(process)[0] == 76
    assert len(terms(desk)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_and_us(desk: Desk, number: signal.Signals) -> None:
    """It is passed on; when the command has tidied up, we resign and exit with its code."""
    script = f"trap 'sleep 0.2; touch tidied; exit 7' {number.value}; {LAST}"
    process = standing(desk, script=script)
    process.send_signal(number)
    assert desk.ended(process) == (7, "", "")
    assert desk.path("tidied").exists() and desk.hold.election("job").leader() is None


def test_a_signal_while_standing(desk: Desk) -> None:
    """It leaves the queue and exits; the command never ran."""
    with desk.hold.election("job").campaign():
        process = desk.start("elect", "job", "--", "touch", "up")
        desk.until(lambda: desk.hold.inspect("job").waiters, process)
        process.send_signal(signal.SIGTERM)
        assert desk.ended(process) == (128 + signal.SIGTERM, "", "")
        desk.until(lambda: not desk.hold.inspect("job").waiters)
    assert not desk.path("up").exists()


def test_the_wait_is_over(desk: Desk) -> None:
    """75, and who leads."""
    with desk.hold.election("job").campaign():
        done = desk.run("elect", "job", "--wait", "0.1s", "--", "true")
    assert done.returncode == 75 and "job is held by" in done.stderr


def test_candidates_take_turns(desk: Desk) -> None:
    """The next one leads when the first is gone, and never both."""
    first = standing(desk, script="echo $$ > first; touch up; exec sleep 60")
    second = desk.start("elect", "job", "--", "sh", "-c", "kill -0 $(cat first) && touch both; exit 5")
    desk.until(lambda: desk.hold.inspect("job").waiters, second)
    first.send_signal(signal.SIGTERM)
    assert desk.ended(first)[0] == 143 and desk.ended(second)[0] == 5
    assert not desk.path("both").exists()


def test_an_unhealthy_leader_steps_down(desk: Desk) -> None:
    """The health command fails: the command is stopped, and runs again when it is well."""
    desk.path("well").touch()
    process = standing(desk, "--ttl", "1.5s", "--health", "echo checked; test -e well", "--json", *AT_ONCE)
    desk.path("well").unlink()
    desk.until(lambda: len(terms(desk, "stopped")) == 1, process)
    desk.path("well").touch()
    desk.until(lambda: len(terms(desk)) >= 2 and desk.hold.election("job").leader(), process)
    process.send_signal(signal.SIGTERM)
    code, out, err = desk.ended(process)
    events = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert (code, out) == (7, "") and "checked" in err
    assert next(event["reason"] for event in events if event["event"] == "lost") == "unhealthy"
    assert [event["event"] for event in events if event["event"] != "waiting"][:5] == [
        "elected", "lost", "exited", "pausing", "elected",
    ]  # fmt: skip


def test_a_command_that_is_not_ready_at_once(desk: Desk) -> None:
    """In the start period failed checks do not count, however many: it leads on, and is healthy when it is ready."""
    script = (
        "until test -e asked && test $(wc -l < asked) -ge 3; do sleep 0.02; done; touch ready; "
        "until test -e well; do sleep 0.02; done; exit 5"
    )
    health = "echo x >> asked; test -e ready && touch well"
    process = desk.start("elect", "job", "--ttl", "1.5s", "--health", health, "--", "sh", "-c", script)
    assert desk.ended(process) == (5, "", "")


def test_failures_in_a_row(desk: Desk) -> None:
    """``--health-retries 2``: a success forgives a failure, and two in a row end the term. The first success has ended
    the start period."""
    health = "echo x >> asked; case $(wc -l < asked) in 1|3) true;; *) false;; esac"
    options = ["--ttl", "1.5s", "--once", "--health-retries", "2", "--health-start-period", "1h", "--health", health]
    code, _, err = desk.ended(standing(desk, *options))
    assert (code, "is lost (unhealthy)" in err) == (76, True)
    assert desk.path("asked").read_text().count("x") == 5


def test_pauses_grow(desk: Desk) -> None:
    """A command that is never well is not started ten times a second: each pause is drawn from twice as long."""
    process = standing(desk, "--ttl", "1.5s", "--health", "false", "--json", *AT_ONCE)
    desk.until(lambda: len(terms(desk)) >= 3, process)
    process.send_signal(signal.SIGTERM)
    events = [json.loads(line) for line in desk.ended(process)[2].splitlines() if line.startswith("{")]
    pauses = [event["seconds"] for event in events if event["event"] == "pausing"]
    assert all(0.25 * 2**n <= pause <= 0.5 * 2**n for n, pause in enumerate(pauses)) and len(pauses) >= 2


def test_the_example_in_the_help(desk: Desk) -> None:
    """The command serves the URL that is checked: as it is written there, it comes to lead and stays leader."""
    shown = desk.run("elect", "--help").stdout.replace("\\\n", "").splitlines()
    example = next(line for line in shown if "leasehold elect" in line and "--health" in line)
    with reserve() as free:
        port = str(free.getsockname()[1])
        words = shlex.split(example.replace("8000", port))
        desk.path("scheduler").write_text(SCHEDULER.format(python=sys.executable, port=port))
        desk.path("scheduler").chmod(0o755)
        process = desk.start(*words[1:], "--json")
        desk.until(desk.path("checked").exists, process)
        assert desk.hold.election("scheduler").leader() is not None
        process.send_signal(signal.SIGTERM)
        code, _, err = desk.ended(process)
    assert code == 143 and '"lost"' not in err


def test_a_health_command_that_hangs(desk: Desk) -> None:
    """It is a bad answer, and neither it nor the command is left behind."""
    process = standing(desk, "--ttl", "1.5s", "--once", "--health", "echo $$ > checking; sleep 60", *AT_ONCE)
    code, _, err = desk.ended(process)
    assert (code, "is lost (max_idle)" in err) == (76, True)
    assert not any(alive(pid) for pid in pids(desk.path("checking")))


def test_the_health_command_ends_with_us(desk: Desk) -> None:
    """The command is done while its health is being checked: nobody waits for that, and no process stays."""
    script = "while ! test -e checking; do sleep 0.02; done; exit 4"
    process = desk.start("elect", "job", "--health", "echo $$ > checking; exec sleep 60", "--", "sh", "-c", script)
    assert desk.ended(process)[0] == 4
    assert not any(alive(pid) for pid in pids(desk.path("checking")))


def test_a_killed_leader_is_succeeded(desk: Desk) -> None:
    """SIGKILL: its command dies with it, and the next one leads after the ttl."""
    first = standing(desk, "--ttl", "1.5s", script="echo $$ > first; touch up; exec sleep 60")
    second = desk.start("elect", "job", "--ttl", "1.5s", "--", "sh", "-c", "exit 5")
    desk.until(lambda: desk.hold.inspect("job").waiters, second)
    first.kill()
    assert desk.ended(second)[0] == 5
    assert not alive(*pids(desk.path("first")))


def test_the_server_dies(desk: Desk, own_redis: Callable[..., RedisServer]) -> None:
    """No store, no leader: the command is stopped in time, and 69 says that we cannot stand again."""
    server = own_redis()
    process = standing(desk, "--ttl", "3s", "--wait", "1s", "--url", server.url)
    server.kill()
    code, _, err = desk.ended(process)
    assert (code, "is lost (renewal_failed): the command is stopped" in err) == (69, True)
    assert terms(desk) == terms(desk, "stopped")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["elect", "job", "--ttl", "0s", "--", "true"], 2),
        (["elect", "job", "--", "no-such-program"], 127),
        (["elect", "job", "--", "/etc/passwd"], 126),
        (["elect", "job::", "--", "true"], 2),
        (["elect", "job", "--value", "x" * 5000, "--", "true"], 2),
        (["elect", "--url", "nonsense", "job", "--", "true"], 78),
    ],
)
def test_mistakes(desk: Desk, words: list[str], code: int) -> None:
    """The same exit codes as with ``run``."""
    done = desk.run(*words)
    assert (done.returncode, done.stdout) == (code, "") and done.stderr
