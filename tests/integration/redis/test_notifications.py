"""Every notification is dropped: a grant still comes within one beat (I13)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from leasehold._core import policy
from leasehold._core.policy import beat_every_ms
from leasehold.stores.redis import protocol as speech
from tests.support.redis.stage import SLACK, Stage, now
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

TTL = 1.5
BEAT = beat_every_ms(round(TTL * 1000)) / 1000
DEAF = "ACL SETUSER deaf on >secret ~lock:v1:* resetchannels +@all"


def pauses(stage: Stage, count: int, ttl: float = TTL) -> list[float]:
    """So many wait; the times from the release to the first turn, and from each turn to the next."""
    party, lease = stage.acquire(ttl=60)
    turns = stage.queue(count, ttl=ttl)
    times = [now()]
    assert party.do(lambda _: lease.release()) is True
    times += [turn.result(PATIENCE).at for turn in turns]
    return [later - earlier for earlier, later in pairwise(times)]


def test_a_push_comes_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without faults nobody waits for a beat: here the next one would be a minute away."""
    monkeypatch.setattr(policy, "beat_every_ms", lambda _: 60_000)
    assert len(pauses(stage, 3, ttl=60)) == 3
    assert stage.aim.seen["beat"] == 0


def test_every_push_is_dropped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server believes that they were heard; each waiter finds its grant by its own next beat."""
    monkeypatch.setattr(speech, "push", lambda *_: None)
    assert max(pauses(stage, 2)) <= BEAT + SLACK


def test_pushes_go_nowhere(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published where nobody listens: waiters are passed over as if they had gone, and take it by their own beats."""
    for script in speech.SCRIPTS:
        text = script.text.replace("'PUBLISH', address", "'PUBLISH', 'nowhere'")
        monkeypatch.setattr(script, "text", text)
        monkeypatch.setattr(script, "sha", stage.look.client.script_load(text))
    monkeypatch.setattr(speech, "_by_sha", {script.sha: script for script in speech.SCRIPTS})
    assert max(pauses(stage, 2)) <= BEAT + SLACK


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_user_without_channels(stage: Stage, protocol: int) -> None:
    """ACL forbids channels: it works by asking. The first in the queue asks every 30 ms, who becomes first within a
    beat."""
    stage.user(DEAF)
    stage.url = stage.url.replace("redis://", "redis://deaf:secret@") + f"?protocol={protocol}"
    assert max(pauses(stage, 3)) <= BEAT + SLACK


def test_a_mixed_company(stage: Stage) -> None:
    """Some may hear and some may not: they stand in one queue, in order, and nobody waits for more than a beat."""
    stage.user(DEAF)
    hearing, deaf = stage.url, stage.url.replace("redis://", "redis://deaf:secret@")
    party, lease = stage.acquire(ttl=30)
    turns = []
    for url in (deaf, hearing, deaf, hearing):
        stage.url = url
        turns += stage.queue(1, ttl=TTL)
    before = stage.look.queue()
    assert party.do(lambda _: lease.release()) is True
    done = [turn.result(PATIENCE) for turn in turns]
    assert [turn.owner for turn in done] == before
    until(lambda: stage.look.leftovers() == [], "nothing is left")
