"""Sentinel: do enough Sentinels watch, do they agree, and would a failover find a replica; then the primary itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from leasehold.doctor import redis, rights
from leasehold.doctor.members import Away, fix, together
from leasehold.doctor.nodes import Node, ReplyError, Server, facts, pairs_of
from leasehold.doctor.report import Finding, note, ok, problem, unseen, warning
from leasehold.stores.redis.target import Sentinels, Target

ENOUGH = 3  # Sentinels: with two, one that is gone leaves no majority
DOWN = ("s_down", "o_down", "disconnected")


class Opinion(NamedTuple):
    """What one Sentinel says of the service."""

    sentinel: str
    fields: dict[str, str]
    quorum: str  # its reply to CKQUORUM: OK, NOQUORUM, or why it cannot be asked

    @property
    def primary(self) -> tuple[str, str]:
        return self.fields.get("ip", ""), self.fields.get("port", "")

    @property
    def flags(self) -> list[str]:
        return self.fields.get("flags", "").split(",")


def examine(sentinels: Sentinels, resource: str) -> list[Finding]:
    answers = together(sentinels.targets, lambda target: _opinion(target, sentinels.service))
    opinions = [one for one in answers if isinstance(one, Opinion)]
    found = [*_reachable(sentinels.targets, answers), *_agreement(opinions), _rights()]
    for opinion in opinions:
        found += [finding.at(opinion.sentinel) for finding in _health(opinion)]
    return found + _primary(sentinels, opinions, resource)


def _opinion(target: Target, service: str) -> Opinion:
    with Node(target) as node:
        if not service:  # a client of redis-py that names no service: they watch only one
            (masters,) = node.ask(("SENTINEL", "MASTERS"))
            service = "" if isinstance(masters, ReplyError) or not masters else _fields(masters[0]).get("name", "")
        found, quorum = node.ask(("SENTINEL", "MASTER", service), ("SENTINEL", "CKQUORUM", service))
    if isinstance(found, ReplyError):
        raise Away(f"it says of the service {service}: {found}")
    return Opinion(str(target), _fields(found), str(quorum) if isinstance(quorum, ReplyError) else "OK")


def _fields(reply: Any) -> dict[str, str]:
    return pairs_of(reply)


def _reachable(targets: Sequence[Target], answers: Sequence[Opinion | Away]) -> list[Finding]:
    gone = [(target, one) for target, one in zip(targets, answers, strict=True) if isinstance(one, Away)]
    if not gone:
        return [ok("sentinels", f"{len(targets)} Sentinels answer")]
    majority = len(targets) - len(gone) > len(targets) // 2
    make = warning if majority else problem
    why = "A failover needs a majority of them" + ("" if majority else ", and there is none")
    return [
        make(
            "sentinels" if majority else "reachable",
            f"a Sentinel is of no use: {error}",
            why,
            fix(error, "Start it, or correct the URL"),
        ).at(str(target))
        for target, error in gone
    ]


def _agreement(opinions: list[Opinion]) -> list[Finding]:
    named = {one.primary for one in opinions}
    if len(named) <= 1:
        return []
    each = ", ".join(f"{one.sentinel} says {':'.join(one.primary)}" for one in opinions)
    return [
        problem(
            "sentinels",
            f"the Sentinels name different primaries: {each}",
            "A failover is under way, or one of them is cut off: clients that ask it would use an old primary",
            "If it does not pass, look at the network of the one that is behind, or SENTINEL RESET there",
        )
    ]


def _health(opinion: Opinion) -> list[Finding]:
    return [*_quorum(opinion), *_down(opinion), *_others(opinion)]


def _quorum(opinion: Opinion) -> list[Finding]:
    if opinion.quorum == "OK":
        return [ok("quorum", "a failover has its quorum and its majority")]
    if opinion.quorum.startswith("NOQUORUM"):
        return [
            problem(
                "quorum",
                f"no failover can happen: {opinion.quorum}",
                "When the primary is gone, it stays so",
                "Start the Sentinels that are missing, or lower the quorum of the service",
            )
        ]
    return [unseen("quorum", "the quorum", "SENTINEL CKQUORUM is refused to this user")]


def _down(opinion: Opinion) -> list[Finding]:
    why = [flag for flag in opinion.flags if flag in DOWN]
    if not why:
        return []
    return [
        problem(
            "sentinels",
            f"it holds the primary to be down ({', '.join(why)})",
            "Nothing can be leased until another is promoted, or this one is back",
            "Look at the primary and the network to it",
        )
    ]


def _others(opinion: Opinion) -> list[Finding]:
    fields = opinion.fields
    known = int(fields.get("num-other-sentinels", 0)) + 1
    after = int(fields.get("down-after-milliseconds", 0)) / 1000
    text = f"it knows {known} Sentinels, {fields.get('num-slaves', '?')} replicas; down after {after:g} s"
    if known >= ENOUGH:
        return [note("sentinels", text)]
    return [
        warning(
            "sentinels",
            text,
            f"With fewer than {ENOUGH}, one that is gone leaves no majority: no failover",
            f"Run {ENOUGH} Sentinels, on hosts that do not fail together",
        )
    ]


def _rights() -> Finding:
    return note("permissions", "what a login at the Sentinels needs", "", rights.sentinel_line())


def _primary(sentinels: Sentinels, opinions: list[Opinion], resource: str) -> list[Finding]:
    """The server that most of them name."""
    named = [one.primary for one in opinions if one.primary[1].isdigit()]
    if not named:
        return []
    host, port = max(set(named), key=named.count)
    target = sentinels.primary._replace(host=sentinels.force_host or host, port=int(port), path="")
    try:
        found = facts(target, resource)
    except Away as error:
        return [redis.away(str(target), error, "the primary")]
    server = Server(found, True, rights.redis_line())
    return [*redis.check(server), *redis.check_clocks([server])]
