"""A fork in the middle of ``with hold.lock(...)``, as from a signal handler: one lease, one holder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import leasehold
from tests.support.faults.aftermath import expect_sound
from tests.support.faults.user import LoopUser
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
SOURCES = Path(leasehold.__file__).parents[1]
SOAK = [pytest.param(store, marks=pytest.mark.soak) for store in ("sqlite", "postgresql", "etcd", "zookeeper")]


@pytest.mark.parametrize("url", ["redis", *SOAK], indirect=True)
def test_a_fork_on_every_line(url: str) -> None:
    """The parent notices nothing. The child gets an error, a lease that is lost, or one of its own."""
    command = [sys.executable, "-m", "tests.support.faults.forks", url]
    environment = {**os.environ, "PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    lines, wrong = json.loads(done.stdout)
    assert wrong == [] and lines > 50


def test_a_fork_inside_an_async_body(url: str, other: leasehold.Leasehold) -> None:
    """The child's copy of the lease is lost, and its end gives nothing back; the parent goes on."""
    with closing(LoopUser(url)) as user:

        def body(lease: leasehold.AsyncLease) -> None:
            child = os.fork()
            if child == 0:
                os._exit(0 if lease.state == "lost" else 1)
            assert os.waitpid(child, 0)[1] == 0
            holder = other.inspect(lease.resource).holder
            assert lease.state == "held" and holder is not None and holder.fence == lease.fence

        use = user.use(1, body=body)
        assert use.raised is None
        expect_sound(user, other, use)
