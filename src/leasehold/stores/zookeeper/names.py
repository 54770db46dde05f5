"""The nodes of the tree, and how they are named.

    <chroot>                                    its data says that the tree is ours
    <chroot>/r/<bucket>/<resource>              a record; persistent
    <chroot>/r/<bucket>/<resource>/q            its version counts the places that were made; persistent
    <chroot>/r/<bucket>/<resource>/<place>      a claim that waits: <owner>-<session>-<number>; ephemeral, sequential.
                                                <owner> is the digest of its token, with what the claim offers, if any:
                                                <digest>.<ttl>.<floor>.<since>.<delay>.<holder address>.<public owner>
    <chroot>/n/<address>                        the last texts that were sent to an address; ephemeral
    <chroot>/s/<session>                        a client that is connected; ephemeral

There are 256 buckets, made with the tree. A listing reads one after the other, so that no reply grows with the number
of all resources. The version of a bucket's node counts the records that were removed from it: see ``revisions``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from urllib.parse import quote, unquote

from leasehold._core.light_typing import NamedTuple
from leasehold._core.policy import MAX_FENCE
from leasehold._core.types import public_owner
from leasehold.stores.record.requests import Offer, Place

MARK = b"leasehold 1"  # the data of the chroot: whose tree this is, and its version
BUCKETS = tuple(f"{number:02x}" for number in range(256))
SAFE = ":@,;=+$&!*'()~"  # these stay as they are: names are easier to read
PLACE = re.compile(r"(?P<owner>[^-]+)-(?P<session>[0-9a-f]{16})-(?P<number>-?\d{10})")
COUNTER = 1 << 32  # the counter of a node's children is a signed integer of 32 bits, and goes on below zero


class Names:
    """The paths below one chroot."""

    def __init__(self, chroot: str) -> None:
        self.chroot = chroot
        self.records = f"{chroot}/r"
        self.news = f"{chroot}/n"
        self.sessions = f"{chroot}/s"

    def bucket(self, resource: str) -> str:
        return f"{self.records}/{bucket(resource)}"

    def record(self, resource: str) -> str:
        return f"{self.records}/{bucket(resource)}/{escaped(resource)}"

    def place(self, resource: str, key: str) -> str:
        return f"{self.record(resource)}/{key}"

    def queue(self, resource: str) -> str:
        return f"{self.record(resource)}/q"

    def address(self, address: str) -> str:
        return f"{self.news}/{escaped(address)}"


class Queue(NamedTuple):
    """The places of one resource. ``surplus``: further ones that our session made for the same owner."""

    places: tuple[Place, ...]
    surplus: tuple[str, ...]


@lru_cache(maxsize=1024)
def bucket(resource: str) -> str:
    return blake2b(resource.encode(errors="surrogatepass"), digest_size=1).hexdigest()


@lru_cache(maxsize=1024)
def escaped(name: str) -> str:
    """As the name of a node. It has no slash in it, and is never ``.`` or ``..``."""
    text = quote(name, safe=SAFE, errors="surrogatepass")
    return text.replace(".", "%2E") if text in (".", "..") else text


def unescaped(node: str) -> str | None:
    """None for a name that ``escaped`` does not give."""
    try:
        name = unquote(node, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if name and escaped(name) == node else None


def session_name(session: int) -> str:
    return f"{session & 0xFFFFFFFFFFFFFFFF:016x}"


def place_owner(owner: str, offer: Offer | None) -> str:
    """The first part of the name of a place. It holds no secret: names are seen in logs."""
    if offer is None:
        return _part(owner)
    _, ttl_ms, floor, since_us, address, delay_ms = offer
    return f"{_part(owner)}.{ttl_ms}.{floor}.{since_us}.{delay_ms}.{_part(address)}.{_part(public_owner(offer.owner))}"


@lru_cache(maxsize=256)
def _part(text: str) -> str:
    return quote(text, safe=":", errors="surrogatepass").replace("-", "%2D").replace(".", "%2E")


def place_prefix(owner: str, session: int) -> str:
    """What a new place is named before ZooKeeper adds its number; ``owner`` as by ``place_owner``."""
    return f"{owner}-{session_name(session)}-"


def queue(children: Iterable[str], session: int | None) -> Queue:
    """Of the children of a record. When the reply to a join was lost and it was made again, an owner has two places:
    the first one counts."""
    ours = "" if session is None else session_name(session)
    found: dict[tuple[str, str], Place] = {}
    surplus = []
    for place, made_by in sorted(filter(None, map(_parsed, children)), key=_number):
        if (place.owner, made_by) not in found:
            found[place.owner, made_by] = place._replace(ours=True) if made_by == ours else place
        elif made_by == ours:
            surplus.append(place.key)
    return Queue(tuple(found.values()), tuple(surplus))


def _number(parsed: tuple[Place, str]) -> int:
    return parsed[0].number


@lru_cache(maxsize=1024)  # whoever waits reads the same names again and again
def _parsed(key: str) -> tuple[Place, str] | None:
    """The place, as one of somebody else, and the name of its session. None for what is no place."""
    match = PLACE.fullmatch(key)
    if match is None:
        return None
    digest, _, offered = match["owner"].partition(".")
    owner = unquote(digest)
    offer = _offer(owner, offered) if offered else None
    return Place(owner, int(match["number"]) % COUNTER, key, ours=False, offer=offer), match["session"]


def _offer(digest: str, text: str) -> Offer | None:
    """None for what is none of ours."""
    try:
        ttl_ms, floor, since_us, delay_ms, address, shown = text.split(".")
        offer = Offer(
            f"{unquote(shown)}#{digest}", int(ttl_ms), int(floor), int(since_us), unquote(address), int(delay_ms)
        )
    except ValueError:
        return None
    numbers = offer.ttl_ms - 1, offer.floor, offer.since_us, offer.delay_ms
    return offer if all(0 <= one <= MAX_FENCE for one in numbers) else None
