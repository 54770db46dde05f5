"""A worker in a process of its own, which a test can make stand still.

    python -m tests.integration.ensembles.process sync|asyncio URL JOURNAL NAME

It takes turns until a line comes on stdin, then one more, gives its lease back, and says what it did in a line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence

from leasehold.coordinator.stores import open_store
from tests.integration.ensembles.stage import SharedData, Worker
from tests.support.parties import FLAVOURS
from tests.support.waiting import until

TTL = 4.0  # seconds: some outages are longer
ENDLESS = 1_000_000  # turns
STAYS = [0, 0, 0.1, 1, TTL + 1]  # seconds inside


def more_turns(worker: Worker) -> Callable[[], bool]:
    """Has it had another turn since now?"""
    before = len(worker.turns)
    return lambda: len(worker.turns) > before or bool(worker.wrong)


def main(arguments: Sequence[str]) -> None:
    """Until it is told to end."""
    flavour, url, path, name = arguments
    chance = random.Random(name)
    party = FLAVOURS[flavour](open_store(url))
    worker = Worker(party, SharedData(path), TTL, ENDLESS)
    worker.patience = lambda: chance.choice(STAYS)
    sys.stdin.readline()
    until(more_turns(worker), "it goes on")
    worker.left = 0
    worker.leave.set()
    worker.join()
    party.close()
    wrong = [repr(error) for error in worker.wrong]
    sys.stdout.write(json.dumps({"turns": worker.turns, "errors": worker.errors, "wrong": wrong}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
