"""Records that no script of ours would write, at every key of a resource: for the tests of what strangers do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import redis

from leasehold._core.ops import (
    Adopt,
    Beat,
    Claim,
    Evict,
    Granted,
    Group,
    Inspect,
    Release,
    Renew,
    Resize,
    Revoke,
    Scan,
    StoreOp,
    Watch,
    Withdraw,
)
from leasehold.stores.redis import RedisStore

NAME = "job"
PREFIX = f"lock:v1:{{{NAME}}}:"
STRINGS, LISTS, HASHES = (
    ("owner", "fence"),
    ("queue", "notes"),
    ("more", "holders", "watchers"),
)
PARTS = (*STRINGS, *LISTS, *HASHES)
SPECIAL = (b":closed", b":doors", b":grant", b":limit")
A, B, C, D = (f"host:{pid}:{'0' * 32}.1" for pid in (1, 2, 3, 4))
NUMBERS = (b"-1", b"0", b"nan", b"-nan", b"inf", b"1e999", b"0x10", b" 7 ", b"1_0", b"2.5", b"%d" % (2**53 - 1),
           b"%d" % 2**53, b"%d" % (2**53 + 1), b"%d" % 2**63, b"9" * 16, b"9" * 17, b"9" * 400, b"0" * 40)  # fmt: skip
TEXTS = (b"", b" ", b"-", b":", b",", b"x", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\n", "é".encode(), b"mutex",
         b"read", b"write", b"semaphore", b"0", b"0,0", b",0", b":read 5", b":semaphore 5 5 5 1", b"%", b"[",
         b"\x1b[2J")  # fmt: skip
LETTERS = (b"a", b" ", b":", b",", b"1", b"0", b"9", b"read:", b"1 ", b"1,", b"0:", b"a:1:", b"\xff", b"\n",
           b"semaphore:1:", b":semaphore ", b"mutex ", b"{", b"}:a", b"-")  # fmt: skip


def value(chance: random.Random, most: int) -> bytes:
    """One field."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.choice(NUMBERS)
    if kind == 1:
        return chance.choice(TEXTS)
    if kind == 2:
        letters = chance.choice(LETTERS)
        return letters * (chance.choice((1, 10, 1000, most)) // len(letters))
    return chance.randbytes(chance.randrange(40))


def record(chance: random.Random, ordinary: bytes, most: int) -> bytes:
    """A whole record: nothing like one, or an ordinary one in which some field is replaced, added or lost."""
    if chance.random() < 0.3:
        return value(chance, most)
    parting = chance.choice((b" ", b" ", b" ", b":", b","))
    fields = ordinary.split(parting)
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(fields))
        how = chance.randrange(4)
        if how == 0:
            fields.insert(at, value(chance, most))
        elif how == 1 and len(fields) > 1:
            del fields[at]
        else:
            fields[at] = value(chance, most)
    return parting.join(fields)


def furnish(store: RedisStore, chance: random.Random) -> None:
    """An ordinary life of the resource: somebody holds, or several share it, and others wait, watch or have left."""
    rule = chance.choice(("mutex", "write", "read", "semaphore"))
    ends: dict[str, int] = {}
    for owner in (A, B, C):
        reply = store.execute(
            Claim(
                NAME,
                owner,
                chance.choice((50, 5_000)),
                1,
                0,
                True,
                rule,
                1,
                3,
                "",
                "",
                '{"by":"me"}',
                delay_ms=chance.choice((0, 90_000)),
            )
        )
        if isinstance(reply, Granted):
            ends[owner] = reply.fence
    store.execute(Watch(NAME, D, ""))
    if chance.random() < 0.5:
        store.execute(Resize(NAME, 3))
    for owner, fence in ends.items():
        step = chance.randrange(4)
        if step == 0:
            store.execute(Release(NAME, owner, fence, 60_000))
        elif step == 1:
            store.execute(Evict(NAME, owner, fence, "request", 30_000, True, '{"by":"me","reason":"why"}'))
        elif step == 2:
            store.execute(Renew(NAME, owner, fence, 5_000, number=1, closed_ms=60_000))


def disturb(client: Any, chance: random.Random, most: int) -> list[tuple[str, str]]:
    """Write over something, at one key or several; what was done."""
    done = []
    for part in chance.sample(PARTS, chance.choice((1, 1, 2, 4))):
        key = PREFIX + part
        how = "of another type" if chance.random() < 0.15 else "strange"
        if how == "of another type":
            client.delete(key)
            _other(part, chance)(client, key)
        elif part in STRINGS:
            client.set(key, record(chance, client.get(key) or b"1 1 1 1", most), keepttl=True)
        elif part in LISTS:
            for _ in range(chance.choice((1, 3, 25))):
                client.rpush(key, record(chance, client.lindex(key, 0) or b"1 1 1 1", most))
            if chance.random() < 0.1:
                client.rpush(key, *[b"%d" % number for number in range(5_000)])
        else:
            _disturb_hash(client, key, chance, most)
        if client.pttl(key) == -1 and chance.random() < 0.5:
            client.pexpire(key, chance.choice((1, 5_000, 10**12)))
        done.append((part, how))
    return done


def _disturb_hash(client: Any, key: str, chance: random.Random, most: int) -> None:
    known = client.hgetall(key)
    fields = [*known, *SPECIAL, A.encode(), B.encode(), value(chance, most)]
    for field in chance.sample(fields, min(len(fields), chance.choice((1, 2, 5)))):
        client.hset(key, field, record(chance, known.get(field) or b"1 1 released read:0:1", most))
    if chance.random() < 0.1:
        client.hset(key, mapping={b"%d" % number: value(chance, 100) for number in range(5_000)})


def _other(part: str, chance: random.Random) -> Callable[[redis.Redis, str], object]:
    """Something that is no string, no list or no hash."""
    ways: list[Callable[[redis.Redis, str], object]] = [
        lambda client, key: client.sadd(key, "member"),
        lambda client, key: client.zadd(key, {"member": 1}),
        lambda client, key: client.xadd(key, {"a": "b"}),
    ]
    if part not in STRINGS:
        ways.append(lambda client, key: client.set(key, "text"))
    if part not in LISTS:
        ways.append(lambda client, key: client.rpush(key, "element"))
    if part not in HASHES:
        ways.append(lambda client, key: client.hset(key, "field", "value"))
    return chance.choice(ways)


def every_op(fence: int) -> Iterator[StoreOp]:
    """Each script, for those who were here before and for somebody who comes now."""
    new = f"host:9:{'0' * 32}.1"
    yield Inspect(NAME)
    yield Inspect(NAME, queue=False)
    yield Scan("*")
    yield Watch(NAME, D, "lock:v1:push:nobody")
    for owner in (A, B, new):
        yield Beat(NAME, owner, 2, 0)
        yield Renew(NAME, owner, fence, 5_000, number=2)
        yield Renew(NAME, owner, fence, 5_000, exact=True, number=3, closed_ms=10, ticket="00", shared=True, meta="{}")
        yield Revoke(NAME, owner, fence)
    for rule in ("mutex", "read", "write", "semaphore"):
        yield Claim(NAME, f"{new}{rule}", 5_000, 1, 0, False, rule, 2 if rule == "semaphore" else 1, 3)
    yield Claim(NAME, new, 5_000, 1, 0, True, "read", 1, 1)
    yield Group((Claim(NAME, f"{new}a", 5_000), Claim("other", f"{new}b", 5_000)))
    yield Group((Claim("other", f"{new}c", 5_000), Claim(NAME, f"{new}d", 5_000)))
    yield Group((Release(NAME, A, fence), Release(NAME, f"{new}a", fence)))
    yield Adopt(NAME, fence, "00", f"{new}e", 5_000)
    yield Resize(NAME, 4)
    yield Evict(NAME, B, fence, "request", 0, True, "{}")
    yield Release(NAME, B, fence)
    yield Release(NAME, A, fence, 60_000)
    yield Withdraw(NAME, new, 60_000)
    yield Inspect(NAME)
