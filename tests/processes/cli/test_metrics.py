"""``--metrics-file`` and ``--metrics-port``: what a command counted, for the textfile collector and for Prometheus."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.processes.cli.test_run_signals import startup
from tests.support.cli.desk import Desk

slow = pytest.mark.slow
EACH_SECOND = "* * * * * *"
OFTEN = "import leasehold.cli.metrics as metrics\nmetrics.WRITE_EVERY = 0.05\n"
ALONE = """
import os, threading
fork = os.fork

def alone():
    assert threading.active_count() == 1, threading.enumerate()
    return fork()

os.fork = alone
"""
FETCH = "import sys, urllib.request as r; print(r.urlopen('http://' + sys.argv[1], timeout=60).read().decode())"

Samples = dict[tuple[str, ...], float]


def samples(text: str) -> Samples:
    """By name and the values of the labels, in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def written(path: Path) -> Samples:
    """What a collector reads now. It reads names that end with .prom, and a file that is there is whole."""
    return samples(path.read_text()) if path.exists() else {}


def port() -> str:
    """One that was free just now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


@slow
def test_a_file_at_the_end_of_a_run(desk: Desk) -> None:
    """It has what the run counted, its release too, and nothing else is left. The exit code is the command's."""
    done = desk.run("run", "job:7", "--metrics-file", "job.prom", "--", "sh", "-c", "exit 3")
    assert (done.returncode, done.stderr) == (3, "")
    found = written(desk.path("job.prom"))
    assert found["leasehold_acquire_total", "job", "acquired", "sqlite"] == 1
    assert found["leasehold_release_total", "job", "released"] == 1
    assert found["leasehold_ttl_seconds", "job"] == 30
    assert not [name for name, *_ in found if name.endswith("_created")]
    assert list(desk.folder.glob("*.tmp")) == []
    assert desk.path("job.prom").stat().st_mode & 0o777 == 0o666 & ~_umask(), "the collector is another user"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@slow
def test_a_busy_run_is_counted(desk: Desk) -> None:
    """The run ends before its command began, and says so in the file."""
    desk.holding("job")
    assert desk.run("run", "-n", "job", "--metrics-file", "job.prom", "--", "true").returncode == 75
    assert written(desk.path("job.prom"))["leasehold_acquire_total", "job", "busy", "sqlite"] == 1


@slow
def test_how_the_last_run_ended(desk: Desk) -> None:
    """Its exit code, and the last success of all runs that wrote this file: others do not change it. One that was
    skipped is told by 75, whatever it exits with: no alert takes it for a failure, nor for a success."""
    run = ["run", "acme/job:7", "--metrics-file", "job.prom"]
    code, success = ("leasehold_run_exit_code", "job"), ("leasehold_run_last_success_timestamp_seconds", "job")
    path = desk.path("job.prom")
    assert desk.run(*run, "--", "false").returncode == 1
    assert (written(path)[code], success in written(path)) == (1, False)
    assert desk.run(*run, "--", "grep", "exit_code{.* 1.0", "job.prom").returncode == 0, (
        "it is there during the next run"
    )
    first = written(path)[success]
    assert (written(path)[code], first > 1_700_000_000) == (0, True)
    desk.holding("acme/job:7")
    for words, exited in (([], 75), (["--skip-ok"], 0), (["-E", "3"], 3)):
        assert desk.run(*run, "-n", *words, "--", "true").returncode == exited
        assert (written(path)[code], written(path)[success]) == (75, first)
    path.write_text("of somebody { else\n")
    assert desk.run(*run, "-n", "--", "true").returncode == 75
    assert (written(path)[code], success in written(path)) == (75, False)


@slow
def test_a_port_during_a_run(desk: Desk) -> None:
    """The page says what is held now; with --json the port is told, also where the system chose it."""
    address = f"127.0.0.1:{port()}"
    done = desk.run("run", "job", "--metrics-port", address, "--", sys.executable, "-c", FETCH, f"{address}/metrics")
    assert done.returncode == 0, done.stderr
    assert samples(done.stdout)["leasehold_held", "job"] == 1
    done = desk.run("run", "job", "--metrics-port", "0", "--json", "--", "true")
    assert '"event": "metrics", "host": "127.0.0.1", "port": ' in done.stderr


@slow
def test_clients_that_do_not_behave(desk: Desk) -> None:
    """One that sends nothing, one that is gone and one with another method: the next one is served all the same, and
    the command ends as it would."""
    number = int(port())
    process = desk.start(
        "run", "job", "--metrics-port", str(number), "--", "sh", "-c", "touch up; read -r _", stdin=PIPE
    )
    desk.until(desk.path("up").exists, process)
    silent, gone, other = [socket.create_connection(("127.0.0.1", number), timeout=60) for _ in range(3)]
    with silent, other:
        gone.close()
        other.sendall(b"POST / HTTP/1.1\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.0 405 ")
        with urlopen(f"http://127.0.0.1:{number}/metrics", timeout=60) as page:
            assert samples(page.read().decode())["leasehold_held", "job"] == 1
        assert process.communicate("\n", timeout=60) == ("", "") and process.returncode == 0


@slow
def test_a_cron(desk: Desk) -> None:
    """Run after run is counted in one file, written while it goes on, and the page is there during each run. Each
    process of a command is forked while no other thread runs."""
    address = f"127.0.0.1:{port()}"
    process = desk.start(
        "cron", EACH_SECOND, "job", "--runs", "2", "--metrics-file", "cron.prom", "--metrics-port", address, "--",
        sys.executable, "-c", FETCH, address,
        env=startup(desk, OFTEN + ALONE),
    )  # fmt: skip
    path = desk.path("cron.prom")
    desk.until(lambda: written(path).get(("leasehold_cron_total", "job", "ok")) == 1 or process.poll() is not None)
    code, out, err = desk.ended(process)
    assert (code, err) == (0, "")
    assert out.count('leasehold_held{kind="job"} 1.0') == 2
    found = written(path)
    assert found["leasehold_cron_total", "job", "ok"] == 2 == found["leasehold_cron_duration_seconds_count", "job"]
    assert found["leasehold_cron_last_success_timestamp_seconds", "job"] > 1_700_000_000
    assert list(desk.folder.glob("*.tmp")) == []


@slow
def test_a_cron_that_is_started_again(desk: Desk) -> None:
    """The next process has the last success at once, long before a tick of its own: it is read from the history."""
    success = ("leasehold_cron_last_success_timestamp_seconds", "job")
    assert desk.run("cron", EACH_SECOND, "job", "--runs", "1", "--metrics-file", "a.prom", "--", "true").returncode == 0
    process = desk.start(
        "cron", "0 0 29 2 *", "job", "--metrics-file", "b.prom", "--", "true", env=startup(desk, OFTEN)
    )
    path = desk.path("b.prom")
    desk.until(lambda: success in written(path), process)
    process.send_signal(signal.SIGTERM)
    desk.ended(process)
    found = written(path)
    assert found[success] == written(desk.path("a.prom"))[success] > 1_700_000_000
    assert ("leasehold_cron_total", "job", "ok") not in found, "it has run nothing itself"


@slow
def test_an_election(desk: Desk) -> None:
    """The file says who leads while it does, and that it does so no more when it has ended."""
    process = desk.start(
        "elect", "leader", "--metrics-file", "elect.prom", "--", "sleep", "60", env=startup(desk, OFTEN)
    )
    path = desk.path("elect.prom")
    desk.until(lambda: written(path).get(("leasehold_election_leading", "leader")) == 1, process)
    process.send_signal(signal.SIGTERM)
    assert desk.ended(process)[0] == 128 + signal.SIGTERM
    found = written(path)
    assert found["leasehold_election_terms_total", "leader"] == 1
    assert ("leasehold_election_leading", "leader") not in found


@slow
def test_what_cannot_be_had(desk: Desk) -> None:
    """One sentence and 78, before anything is sent: no folder, a folder in place of a file, a port that is taken, or no
    prometheus-client."""
    desk.path("folder.prom").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        reasons = {
            ("--metrics-file", "absent/job.prom"): "No such file or directory",
            ("--metrics-file", "folder.prom"): "Is a directory",
            ("--metrics-port", str(number)): f"127.0.0.1 port {number}: Address already in use",
        }
        every = desk.each([(["run", "job", *options, "--", "touch", "up"], {}) for options in reasons])
        for done, text in zip(every, reasons.values(), strict=True):
            assert done.returncode == 78 and done.stderr.count("\n") == 1 and text in done.stderr, done
    missing = startup(desk, "import sys\nsys.modules['prometheus_client'] = None\n")
    done = desk.run("run", "job", "--metrics-file", "job.prom", "--", "touch", "up", env=missing)
    assert done.returncode == 78
    assert done.stderr == (
        "leasehold: --metrics-file and --metrics-port need prometheus-client: pip install 'leasehold[prometheus]'\n"
    )
    assert not desk.path("up").exists()


@slow
def test_a_file_that_can_no_longer_be_written(desk: Desk) -> None:
    """It is reported, and the exit code stays that of the command."""
    desk.path("spool").mkdir()
    script = "rm -r spool; exit 3"
    done = desk.run("run", "job", "--metrics-file", "spool/job.prom", "--", "sh", "-c", script)
    assert done.returncode == 3 and "the metrics cannot be written to" in done.stderr


def test_nothing_is_loaded_unless_it_is_asked_for(tmp_path: Path) -> None:
    """A plain run starts fast: neither prometheus-client nor the events are imported."""
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print([one for one in ('prometheus_client', 'leasehold.cli.metrics', 'selectors',"
        " 'leasehold.observe.events', 'leasehold.observe.anti_patterns') if one in sys.modules]))\n"
        "from leasehold.cli import main\nmain()"
    )
    url = f"sqlite:///{tmp_path}/leases.db"
    done = subprocess.run(
        [sys.executable, "-c", program, "--url", url, "run", "job", "--", "true"],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"
