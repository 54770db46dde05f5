"""What the Sentinels are asked, in which order, and which of their answers count. Nothing is sent here."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import hiredis
import pytest

from leasehold import StoreUnavailable
from leasehold._core.driver import drive
from leasehold.stores.redis.connection import RedisConnection
from leasehold.stores.redis.sentinel import Question, SentinelServer, Unsettled
from leasehold.stores.redis.sockets import Broken
from leasehold.stores.redis.target import from_sentinel_url
from tests.support.tables import each

OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6379)
Address = tuple[str, int]


def state(address: Address, epoch: int, flags: str = "master", others: int = 2) -> list[bytes]:
    """As SENTINEL MASTER describes it."""
    fields = {"name": "leases", "ip": address[0], "port": address[1], "flags": flags, "config-epoch": epoch}
    return [str(part).encode() for pair in {**fields, "num-other-sentinels": others}.items() for part in pair]


def names(address: Address, epoch: int, **more: Any) -> list[Any]:
    """The replies of a Sentinel that names this primary."""
    return [[address[0].encode(), str(address[1]).encode()], state(address, epoch, **more)]


class Closed:
    """A socket that need not be open."""

    def close(self) -> None:
        """Nothing to do."""


class Script:
    """What each Sentinel replies; a text is why it cannot be reached."""

    def __init__(self, url: str = "redis+sentinel://a,b,c/leases", **settings: Any) -> None:
        self.server = SentinelServer(from_sentinel_url(url)._replace(**settings))
        self.replies: dict[str, list[Any] | str] = {}
        self.asked: list[str] = []
        self.questions: list[Question] = []

    def _perform(self, question: Question) -> list[Any]:
        self.asked.append(question.sentinel.host)
        self.questions.append(question)
        reply = self.replies[question.sentinel.host]
        if isinstance(reply, str):
            raise Broken(reply)
        return reply

    def say(self, **replies: list[Any] | str) -> None:
        """From now on."""
        self.replies.update(replies)
        self.asked.clear()

    def locate(self, seconds: float = 5.0) -> Address:
        """Where to connect."""
        answer = drive(self.server._discovery(time.monotonic() + seconds), self._perform)
        return answer.host, answer.port

    def confirm(self) -> None:
        """What is learnt while connected."""
        drive(self.server._confirmation(time.monotonic() + 5), self._perform)

    def agree(self) -> Any:
        """What is learnt when the server stood still."""
        return drive(self.server._agreement(time.monotonic() + 5), self._perform)

    def believes(self, address: Address) -> bool:
        """Whether a connection to it may be used."""
        return self.server._is_primary(self.server.target._replace(host=address[0], port=address[1]))


def test_the_first_that_answers_decides_and_is_asked_first_from_then_on() -> None:
    """Sentinels that are down cost time only once."""
    script = Script()
    script.say(a="is down", b=names(OLD, 1), c=names(OLD, 1))
    assert script.locate() == OLD and script.asked == ["a", "b"]
    script.asked.clear()
    assert script.locate() == OLD and script.asked == ["b"]


def test_a_sentinel_that_is_behind_is_outvoted() -> None:
    """It names an earlier primary than one that is known already: the others are asked as well."""
    script = Script()
    script.say(a=names(NEW, 7), b=names(NEW, 7), c=names(NEW, 7))
    assert script.locate() == NEW
    script.say(a=names(OLD, 6))
    assert script.locate() == NEW and script.asked == ["a", "b"]


def test_a_sentinel_that_is_behind_is_not_believed_alone() -> None:
    """The others cannot be reached: rather no primary than one that was replaced."""
    script = Script()
    script.say(a=names(NEW, 7), b=names(NEW, 7), c=names(NEW, 7))
    script.locate()
    script.say(a="is down", b=names(OLD, 6), c="is down")
    with pytest.raises(Unsettled, match="those that answer are behind what was known before"):
        script.locate()
    script.confirm()
    assert script.agree() is None and script.believes(NEW)


def test_sentinels_that_were_set_up_anew_are_believed_by_most() -> None:
    """Their numbers begin again."""
    script = Script()
    script.say(a=names(OLD, 7), b=names(OLD, 7), c=names(OLD, 7))
    script.locate()
    script.say(a=names(NEW, 0), b=names(NEW, 0), c="is down")
    assert script.locate() == NEW
    script.asked.clear()
    assert script.locate() == NEW and len(script.asked) == 1


@each("flags", ["master,s_down", "s_down,o_down,master", "master,o_down,failover_in_progress"])
def test_a_primary_that_a_sentinel_holds_to_be_down_is_not_used(flags: str) -> None:
    """Another Sentinel may see it; where none does, another attempt may find a new one."""
    script = Script()
    script.say(a=names(OLD, 1, flags=flags), b=names(OLD, 1), c="is down")
    assert script.locate() == OLD
    script.say(b=names(OLD, 1, flags=flags))
    with pytest.raises(Unsettled, match="CKQUORUM leases"):
        script.locate()


def test_a_new_primary_is_used_while_replicas_are_still_told_of_it() -> None:
    """Its address is given out, and the state is that of the old one, which is down."""
    script = Script()
    script.say(a=[names(NEW, 2)[0], state(OLD, 2, "master,o_down,failover_in_progress")])
    assert script.locate() == NEW


def test_while_connected_each_sentinel_is_asked_in_its_turn() -> None:
    """One that is cut off together with the old primary cannot keep anybody there."""
    script = Script()
    script.say(a=names(OLD, 1), b=names(OLD, 1), c=names(OLD, 1))
    script.locate()
    script.say(a=names(OLD, 1), b=names(NEW, 2), c=names(NEW, 2))
    for _ in range(3):
        script.confirm()
    assert sorted(script.asked) == ["a", "b", "c"]
    assert script.believes(NEW) and not script.believes(OLD)
    script.confirm()
    assert script.believes(NEW), "the one that is behind changes nothing"


def test_a_late_reply_is_believed_when_all_sentinels_agree() -> None:
    """All are asked; without an answer nothing is confirmed."""
    script = Script()
    script.say(a=names(OLD, 1), b=names(OLD, 1), c=names(NEW, 2))
    script.agree()
    assert sorted(script.asked) == ["a", "b", "c"] and script.believes(NEW)
    script.say(a="is down", b="is down", c="is down")
    assert script.agree() is None


def test_sentinels_that_do_not_answer_are_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried once. Then a call that waits for one of them is rare, until the first answer."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    script = Script()
    script.say(a=names(OLD, 1), b=names(OLD, 1), c=names(OLD, 1))
    script.locate()
    script.say(a="is down", b="is down", c="is down")
    moments = []
    for _ in range(300):
        now += 0.1
        if script.server._is_due():
            moments.append(now)
            script.confirm()
    assert [round(later - sooner) for sooner, later in pairwise(moments)] == [0, 0, 2, 4, 8, 10]
    script.say(a=names(OLD, 1), b=names(OLD, 1), c=names(OLD, 1))
    now += 10
    assert script.server._is_due()
    script.confirm()
    now += 1.1
    assert script.server._is_due()


def test_a_primary_that_is_held_to_be_down_is_asked_about_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be replaced at any moment: a reply of it is believed no longer than it takes to ask the next Sentinel."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    script = Script()
    well, down = names(OLD, 1), names(OLD, 1, flags="master,s_down")
    script.say(a=well, b=well, c=well)
    script.locate()
    assert script.server.believed_for == 1.0
    script.say(a=down, b=down, c=down)
    script.confirm()
    assert script.believes(OLD) and script.server.believed_for == pytest.approx(0.1)
    script.say(a=well, b=down, c=well)
    now += 0.5
    assert script.locate() == OLD, "the first that is asked holds it to be well"
    assert script.server.believed_for == pytest.approx(0.1), "and another held it to be down just before"
    script.say(b=well)
    now += 1.1
    script.confirm()
    assert script.server.believed_for == 1.0


def test_what_was_learnt_does_not_count_when_a_connection_was_left() -> None:
    """The server may stand still, and be replaced: all other connections ask before they use it again."""
    script = Script()
    script.say(a=names(OLD, 1), b=names(OLD, 1), c=names(OLD, 1))
    script.locate()
    assert script.server.believed_for > 0 and not script.server._is_due()
    slow: Any = Closed()
    connection = RedisConnection(script.server)
    connection.use(slow, True)
    connection.drop()
    assert script.server.believed_for < 0 and script.server._is_due()


def test_no_connection_believes_longer_than_the_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """While another thread asks, and also if it gets no answer, what was learnt before does not count for longer."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    script = Script()
    script.say(a=names(OLD, 1), b=names(OLD, 1), c=names(OLD, 1))
    script.locate()
    now += 1.5
    assert script.server._is_due() and not script.server._is_due(), "one of them asks"
    assert script.server.believed_for == -0.5, "all others look again at their next use"


def test_a_user_who_may_not_ask_for_the_state_gets_the_address() -> None:
    """The server itself tells its role."""
    script = Script()
    script.say(a=[names(OLD, 1)[0], hiredis.ReplyError("NOPERM this user has no permissions")])
    assert script.locate() == OLD


@each("reply", [[7, 8], [b"x", b"y"], [[b"host"], []], [[b"host", b"port"], []], [[None, None], []]])
def test_a_reply_that_no_sentinel_sends_is_passed_over(reply: list[Any]) -> None:
    """Something else listens there."""
    script = Script()
    script.say(a=reply, b=names(OLD, 1))
    assert script.locate() == OLD
    script.say(b="is down", c="is down")
    with pytest.raises(StoreUnavailable, match="a:26379 replied with what no Sentinel says"):
        script.locate()


def test_the_time_is_divided_between_those_that_are_left() -> None:
    """One that does not answer leaves time for the others, and for connecting."""
    script = Script()
    script.say(a="is slow", b="is slow", c=names(OLD, 1))
    script.locate(0.4)
    assert all(0 < one.seconds <= 0.21 for one in script.questions) and len(script.questions) == 3
    with pytest.raises(StoreUnavailable, match="there was no time left"):
        script.locate(0)


def test_logins_come_before_the_questions() -> None:
    """Of the Sentinels, in the same write."""
    script = Script("redis+sentinel://:x@a/leases?sentinel_username=u&sentinel_password=p")
    script.say(a=[b"OK", *names(OLD, 1)])
    assert script.locate() == OLD
    assert script.questions[0].commands[0] == ("AUTH", "u", "p")
    script.say(a=[hiredis.ReplyError("WRONGPASS p is wrong"), *[hiredis.ReplyError("NOAUTH")] * 2])
    with pytest.raises(StoreUnavailable, match="refused the login") as caught:
        script.locate()
    assert "p is wrong" not in str(caught.value)


def test_the_only_service_need_not_be_named() -> None:
    """By a Sentinel object; where there are several, the message names them."""
    script = Script(service="")
    both: dict[int, list[Any]] = {1: [[state(OLD, 1)]], 2: names(OLD, 1)}
    script.say(a=[])
    script._perform = lambda question: both[len(question.commands)]  # type: ignore[method-assign]
    assert script.locate() == OLD
    both[1] = [[state(OLD, 1), state(NEW, 1)]]
    with pytest.raises(StoreUnavailable, match=r"watches 2 services \(leases, leases\): name one with sentinel.master"):
        script.locate()


def test_what_a_client_demands_of_its_sentinels_is_kept() -> None:
    """``min_other_sentinels`` and ``force_master_ip`` of redis-py."""
    script = Script(least_others=2, force_host="outside")
    script.say(a=names(OLD, 1, others=1), b=names(OLD, 1, others=2), c="is down")
    assert script.locate() == OLD and script.asked == ["a", "b"]
    assert script.server._target_at(*OLD).host == "outside"
