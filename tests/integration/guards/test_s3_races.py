"""FenceGuard for S3 in a race: threads and processes, fresh and stale, and no update is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from leasehold import Backoff
from leasehold.errors import StaleOwner
from leasehold.guards.s3 import Conflict, FenceGuard
from tests.support.guards.s3_fixtures import tally
from tests.support.servers.s3 import S3Server

LANES = 4
ROOT = Path(__file__).parents[3]


def race(server: S3Server, bucket: str, rounds: int) -> list[list[int]]:
    """Threads count up one object, with fences that cross; the fences of each that were accepted, in order."""
    accepted: list[list[int]] = [[] for _ in range(LANES)]
    failures: list[BaseException] = []

    def work(lane: int) -> None:
        try:
            accepted[lane] = tally(FenceGuard(server.client(), bucket, attempts=30), lane, LANES, rounds)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1500)
    assert not failures, failures
    return accepted


def check_counter(client: Any, bucket: str, accepted: list[list[int]], rounds: int) -> None:
    """Every accepted write is in the counter, and the last is the one with the newest fence."""
    response = client.get_object(Bucket=bucket, Key="counter")
    everybody = [fence for lane in accepted for fence in lane]
    assert json.loads(response["Body"].read()) == [len(everybody), sum(everybody)]
    assert response["Metadata"]["leasehold-fence"] == str(max(everybody)) == str(rounds * LANES)


@pytest.mark.slow
def test_threads_lose_no_update(s3_server: S3Server, s3: Any, bucket: str) -> None:
    """Read, change and write with after=: hundreds of tries by four threads."""
    check_counter(s3, bucket, race(s3_server, bucket, 50), 50)


@pytest.mark.soak
def test_threads_lose_no_update_in_thousands_of_rounds(s3_server: S3Server, s3: Any, bucket: str) -> None:
    """The same, for longer."""
    check_counter(s3, bucket, race(s3_server, bucket, 750), 750)


WORKER = """
import json, sys
from leasehold.guards.s3 import FenceGuard
from tests.support.guards.s3_fixtures import tally
from tests.support.servers.s3 import client

url, bucket, lane, lanes, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
made = client(url)
print(json.dumps(tally(FenceGuard(made, bucket, attempts=30), lane, lanes, rounds)))
made.close()
"""


def processes(server: S3Server, bucket: str, rounds: int) -> list[list[int]]:
    """The same race, by processes."""
    command = [sys.executable, "-W", "error", "-c", WORKER, server.url, bucket]
    workers = [
        subprocess.Popen([*command, str(lane), str(LANES), str(rounds)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for lane in range(LANES)
    ]
    said = [worker.communicate(timeout=1500)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * LANES
    return [json.loads(one) for one in said]


@pytest.mark.slow
def test_processes_lose_no_update(s3_server: S3Server, s3: Any, bucket: str) -> None:
    """Four processes, fences that cross."""
    check_counter(s3, bucket, processes(s3_server, bucket, 10), 10)


@pytest.mark.soak
def test_processes_lose_no_update_in_thousands_of_rounds(s3_server: S3Server, s3: Any, bucket: str) -> None:
    """The same, for longer."""
    check_counter(s3, bucket, processes(s3_server, bucket, 750), 750)


@pytest.mark.slow
def test_puts_without_a_read_only_go_up(s3_server: S3Server, s3: Any, bucket: str) -> None:
    """Threads overwrite one object, fences shuffled: nobody writes over a newer one, and the newest stays."""
    accepted: list[int] = []
    failures: list[BaseException] = []

    def work(lane: int) -> None:
        guard = FenceGuard(server_clients[lane], bucket, attempts=30)
        try:
            for number in range(25):
                fence = number * LANES + lane + 1
                try:
                    guard.put("report", f"{fence}", fence, resource="report:42")
                except StaleOwner as stale:
                    assert stale.seen is not None and stale.seen > fence  # noqa: PT017 # in a thread
                else:
                    accepted.append(fence)
        except BaseException as error:
            failures.append(error)

    server_clients = [s3_server.client() for _ in range(LANES)]
    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not failures, failures
    assert s3.get_object(Bucket=bucket, Key="report")["Body"].read() == b"100"
    assert max(accepted) == 100


@pytest.mark.slow
def test_a_conflict_is_tried_again_by_backoff(s3_guard: FenceGuard) -> None:
    """Backoff takes Conflict for one of the errors that pass: the step is read, change and write."""
    first = s3_guard.put("counter", "0", 10, resource="report:42")
    rivals = iter(["1", "2"])

    def step() -> str:
        found = s3_guard.get("counter", 10, resource="report:42")
        assert found is not None
        for rival in rivals:
            s3_guard.put("counter", rival, 10, resource="report:42")
            break
        return s3_guard.put("counter", found.body + b"+", 10, resource="report:42", after=found).body.decode()

    with pytest.raises(Conflict):
        s3_guard.put("counter", "never", 10, resource="report:42", after=None)
    assert first.body == b"0"
    assert Backoff(base=0.001, attempts=3).call(step) == "2+"
