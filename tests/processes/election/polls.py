"""Workers that stand for one election, what is done to their leaders, and what their journals say afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import leasehold
from tests.processes.election.worker import now
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).parents[3]


class Rule(NamedTuple):
    """One term as its leader believed in it: from being elected until it was demoted, or its local deadline."""

    began: float
    ended: float
    term: int


class Polls:
    """The workers of one test."""

    def __init__(self, url: str, folder: Path, ttl: float, seed: int) -> None:
        self.url = url
        self.ttl = ttl
        self._folder = folder
        self._chance = random.Random(seed)
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._journals: list[Path] = []
        self.hold = leasehold.connect(url)
        self.election = self.hold.election("leader")

    def spawn(self) -> None:
        """One more."""
        number = len(self._journals)
        self._journals.append(self._folder / f"journal-{number}")
        source = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        command = [
            sys.executable,
            "-m",
            "tests.processes.election.worker",
            self.url,
            self._journals[-1],
            self.ttl,
            number,
        ]
        worker = subprocess.Popen([str(word) for word in command], env=source, cwd=self._folder)
        self._workers[worker.pid] = worker

    def leader(self, but: int = 0) -> int:
        """The process that leads, as soon as one does; another than this one."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            leader = self.election.leader()
            if leader is not None and (pid := int(leader.owner.rpartition(":")[2])) in self._workers and pid != but:
                return pid
            time.sleep(0.005)
        raise AssertionError("nobody leads")

    def harm(self, kill: bool) -> float:
        """Kill the leader, or freeze it for longer than its term can last. After how many seconds another one led."""
        time.sleep(self._chance.uniform(0, self.ttl))
        pid, hit = self.leader(), now()
        if kill:
            os.kill(pid, signal.SIGKILL)
            self._workers.pop(pid).wait(PATIENCE)
            self.spawn()
        else:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.ttl + self._chance.uniform(0, self.ttl))
            os.kill(pid, signal.SIGCONT)
        self.leader(but=pid)
        return now() - hit

    def stop(self) -> None:
        """SIGTERM: the leader resigns in its signal handler, the others leave the queue. Nobody hangs."""
        until(self._journals[-1].exists, "the last one has begun")
        for worker in self._workers.values():
            worker.send_signal(signal.SIGTERM)
        assert [worker.wait(PATIENCE) for worker in self._workers.values()] == [0] * len(self._workers)
        self._workers = {}

    def rules(self) -> list[Rule]:
        """Every term, in the order of their beginnings. Whoever was frozen right after it was elected, and woke up when
        its time was over by its own clock, never led."""
        found: list[Rule] = []
        for journal in self._journals:
            for line in journal.read_text().splitlines() if journal.exists() else []:
                entry = json.loads(line)
                if entry["event"] == "elected":
                    found.append(Rule(entry["at"], entry["until"], entry["term"]))
                else:
                    found[-1] = _went_on(found[-1], entry["event"], entry["at"])
        return sorted(rule for rule in found if rule.began < rule.ended)

    def close(self) -> None:
        """End whatever a failed test left."""
        for worker in self._workers.values():
            worker.kill()
            worker.wait(PATIENCE)
        self.hold.close()


def _went_on(rule: Rule, event: str, at: float) -> Rule:
    return rule._replace(ended=at if event == "until" else min(at, rule.ended))


def overlaps(rules: list[Rule]) -> list[tuple[Rule, Rule]]:
    """Pairs of leaders of whom one began before the other's time was over by its own clock."""
    return [(one, other) for one, other in pairwise(rules) if other.began < one.ended]


def shrinking(rules: list[Rule]) -> list[tuple[Rule, Rule]]:
    """Pairs of which the later one has no higher term."""
    return [(one, other) for one, other in pairwise(rules) if other.term <= one.term]
