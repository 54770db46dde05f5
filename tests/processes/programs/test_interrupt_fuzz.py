"""Exceptions from nowhere, at random moments: what a signal handler raises arrives, and nothing stays held.

A failure prints its seed; ``-k`` and the seed in ``SEEDS`` replay the choices, though not the very moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import play

pytestmark = pytest.mark.slow

FUZZ = """
import faulthandler, logging, random, signal, sys, threading, time, traceback, warnings
import leasehold
from leasehold._core.ops import Inspect

url, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
faulthandler.dump_traceback_later(55, exit=True)  # before the test gives up
logging.getLogger("leasehold").setLevel(logging.ERROR)  # leases that nobody refers to any more are lost, and said to be
warnings.simplefilter("ignore")  # a coroutine of ours that an interrupt kept from being started
sys.unraisablehook = lambda what: swallowed.append(f"ignored in {what.object}")
chance = random.Random(seed)
hold, other = leasehold.connect(url), leasehold.connect(url)
hold.semaphore("pool", limit=3)  # loads its module: importlib would take a TimeoutError for a missing file
armed, kind, fired, arrived, rounds, swallowed = False, KeyboardInterrupt, 0, 0, 0, []

def handler(*_):
    global armed, fired
    if armed:
        armed = False
        fired += 1
        raise kind("out of nowhere")

def body():
    with hold.lock("job", ttl=60):
        pass

def again():
    with hold.rlock("job", ttl=60), hold.rlock("job", ttl=60) as lease:
        lease.check()

def refused():
    try:
        with hold.lock("busy", ttl=60, wait=0):
            raise AssertionError("it is taken")
    except leasehold.NotAcquired:
        pass

def waits():
    assert hold.lock("busy", ttl=60).acquire(wait=0.002) is None

def loose():  # between acquire() and the assignment an interrupt leaves it to its ttl
    lease = hold.lock("loose", ttl=0.2).acquire(wait=20)
    lease.extend(0.2)
    lease.release()

def permits():
    pool = hold.semaphore("pool", limit=3, ttl=60, permits=2)
    with pool, hold.semaphore("pool", limit=3, ttl=60) as permit:
        permit.check()

NAMES = {body: "job", again: "job", refused: "free", waits: "free", loose: "loose", permits: "pool"}

def interrupted(step):
    global armed, arrived, where
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 1e-3))
        while armed:
            step()
    except leasehold.LeaseLost as lost:  # on a busy machine
        assert lost.resource == "loose", lost
    except kind as error:
        assert str(error) == "out of nowhere", error
        arrived += 1
        where = traceback.format_tb(error.__traceback__)[-4:]  # for whoever must find out what went wrong
    finally:
        armed = False

signal.signal(signal.SIGALRM, handler)
busy = other.lock("busy", ttl=60).acquire(wait=0)
end = time.monotonic() + seconds
while time.monotonic() < end or rounds < 10:  # on a busy machine a round may take long
    kind = chance.choice([KeyboardInterrupt, TimeoutError])
    step = chance.choices(list(NAMES), [6, 6, 3, 3, 1, 6])[0]
    interrupted(step)
    rounds += 1
    for whoever in (other, hold):  # in time: given back at once, and not when a ttl of 60 s is over
        with whoever.lock(NAMES[step], ttl=60, wait=20):
            pass
assert busy.release()
if (last := hold.lock("busy", ttl=60).acquire(wait=20)) is None:
    errands = [errand.op for errand in hold._engine.watchdog._background_ops._open]
    sys.exit(f"{other._engine.store.execute(Inspect('busy'))} {errands} {hold._engine.watchdog._thread} {where}")
last.release()
engine, end = hold._engine, time.monotonic() + 20
while engine.watchdog.leases() or engine.pending or len(engine.registry):
    assert time.monotonic() < end, (engine.watchdog.leases(), engine.pending, len(engine.registry))
    time.sleep(0.01)
if url.startswith("redis"):
    assert len(engine.connections._open) < 4, "connections of interrupted calls stay open"
hold.close(), other.close()
# Python itself ignores what is raised inside the callback of a weak reference.
assert fired - arrived <= max(1, fired // 100), (fired, arrived, swallowed)
print("done", threading.active_count(), fired, arrived, swallowed)
"""


@pytest.mark.parametrize("seed", [1])
def test_interrupts_at_random_moments(url: str, seed: int, tmp_path: Path) -> None:
    """KeyboardInterrupt and TimeoutError, somewhere in a with statement, a re-entry, a refusal, a wait."""
    assert play(FUZZ, tmp_path, url, seed, 1)[0].split()[:2] == ["done", "1"]


@pytest.mark.soak
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_interrupts(url: str, seed: int, tmp_path: Path) -> None:
    """The same for longer."""
    assert play(FUZZ, tmp_path, url, seed, 20)[0].split()[:2] == ["done", "1"]
