"""An ensemble of three: members that are killed, frozen and cut off, while a client holds and waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold.stores.record.requests import Change, Look, Outcome, Part
from tests.integration.zookeeper.party import Calls, Party
from tests.support.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from tests.support.waiting import until

Joining = Callable[..., Party]
SESSION = "4"
PATIENT = "15"  # it outlives an election, however busy the machine is


@pytest.fixture(params=["threads", pytest.param("asyncio", marks=pytest.mark.soak)])
def flavour(request: pytest.FixtureRequest) -> str:
    """What a member does to a client is the same in both; elections take seconds."""
    flavour: str = request.param
    return flavour


def member_of(party: Party, ensemble: ZooKeeperEnsemble) -> ZooKeeperServer:
    """The one that it is connected to."""
    client = party.server._session._client
    assert client is not None
    port = client._connection._socket.getpeername()[1]
    return next(member for member in ensemble.members if member.port == port)


def write(party: Party, resource: str, text: str) -> None:
    """Until it is known to be done, as a turn does it: look, change, look again."""

    def written() -> bool:
        record = party.look(resource)
        if record.text == text:
            return True
        (answer,) = party.perform(Change((Part(resource, record.revision, text),)), within=2)
        return isinstance(answer, Outcome) and answer.done

    until(written, f"{text} is written")


@pytest.mark.parametrize(
    ("flavour", "harm", "whom"),
    [
        ("threads", "kill", "leader"),
        ("asyncio", "kill", "ours"),
        # A client needs two thirds of its session to notice these.
        pytest.param("asyncio", "freeze", "leader", marks=pytest.mark.soak),
        pytest.param("threads", "freeze", "ours", marks=pytest.mark.soak),
    ],
)
def test_a_member_that_fails(
    ensemble: ZooKeeperEnsemble, join: Joining, chroot: str, flavour: str, harm: str, whom: str
) -> None:
    """The leader, or the one that the client is connected to. Records, the session and its places live on."""
    party = join(flavour, ensemble.url(chroot), session=PATIENT)
    place, session = party.wait_in("a", "me"), party.session
    victim = ensemble.leader if whom == "leader" else member_of(party, ensemble)
    getattr(victim, harm)()
    write(party, "b", "after")
    record = party.look("a")
    assert (record.text, record.places) == ("me waits", (place,))
    assert party.session == session


def test_a_follower_that_is_cut_off(ensemble: ZooKeeperEnsemble, join: Joining, chroot: str, flavour: str) -> None:
    """It serves its client on for a while. What that changes is not done, what it reads is not old, and its place goes
    before it knows."""
    follower = ensemble.followers[0]
    others = [member for member in ensemble.members if member is not follower]
    cut_off = join(flavour, ensemble.url(chroot, [follower]), session="1")
    other = join(url=ensemble.url(chroot, others), session=SESSION)
    cut_off.wait_in("a", "cut off")
    record = cut_off.look("a")
    gone = Calls()
    other.server.watch_place("a", (other.look("a").places or ())[0], gone)
    ensemble.cut_off(follower)
    answers = cut_off.perform(Look(("a",)), Change((Part("a", record.revision, "by the one cut off"),)), within=0.5)
    assert [type(answer) for answer in answers] == [StoreUnavailable, OutcomeUnknown]
    write(other, "a", "by another")
    gone.wait()
    ensemble.reconnect(follower)
    assert cut_off.look("a").text == "by another"
    assert cut_off.look("a").places == ()
    assert not cut_off.change(Part("a", record.revision, "late")).done


def test_a_leader_that_is_cut_off(ensemble: ZooKeeperEnsemble, join: Joining, chroot: str, flavour: str) -> None:
    """It confirms nothing, and what it was told is not done after others have moved on."""
    leader, followers = ensemble.leader, ensemble.followers
    deposed = join(flavour, ensemble.url(chroot, [leader]), session=SESSION)
    other = join(url=ensemble.url(chroot, followers), session=SESSION)
    record = deposed.write("a", "before")
    ensemble.cut_off(leader)
    (answer,) = deposed.perform(Change((Part("a", record.revision, "by the deposed"),)), within=0.5)
    assert isinstance(answer, OutcomeUnknown)
    write(other, "a", "by another")
    ensemble.reconnect(leader)
    assert deposed.look("a").text == "by another"
    assert not deposed.change(Part("a", record.revision, "late")).done


def test_no_majority(ensemble: ZooKeeperEnsemble, join: Joining, chroot: str, flavour: str) -> None:
    """Nothing is changed. A leader shows what it knows until it notices: it asks nobody before it answers ``sync``.
    When the majority is back, all is as it was."""
    party = join(flavour, ensemble.url(chroot), session="10")
    place = party.wait_in("a", "me")
    one, two, _ = ensemble.members
    one.kill()
    two.kill()

    def nothing_is_shown() -> bool:
        look, change = party.perform(Look(("a",)), Change((Part("b", 0, "x"),)), within=0.5)
        assert isinstance(change, StoreUnavailable | OutcomeUnknown)
        return isinstance(look, StoreUnavailable)

    until(nothing_is_shown, "the last one notices")
    one.start()
    two.start()
    assert party.look("a").places == (place,)


@pytest.mark.soak  # what ZooKeeper promises is shown with the same fault
def test_all_members_restart(ensemble: ZooKeeperEnsemble, join: Joining, chroot: str, flavour: str) -> None:
    """Records stay."""
    party = join(flavour, ensemble.url(chroot), session=SESSION)
    party.write("a", "before")
    for member in ensemble.members:
        member.kill()
    ensemble.heal()
    assert party.look("a").text == "before"
    write(party, "a", "after")


def test_what_was_seen_is_not_unseen(ensemble: ZooKeeperEnsemble, join: Joining, chroot: str) -> None:
    """A member that is behind is not believed, also after the session has ended: what is older is read again."""
    party = join(url=ensemble.url(chroot), session=SESSION)
    party.write("a", "seen")
    session = party.server._session
    session.seen += 1000
    (answer,) = party.perform(Look(("a",)), within=0.3)
    assert isinstance(answer, StoreUnavailable)
    session.seen -= 1000
    assert party.look("a").text == "seen"
