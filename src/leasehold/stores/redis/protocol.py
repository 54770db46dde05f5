"""Ops as Redis commands, and replies as the ledger's: one script and one round trip for each op.

hiredis packs the commands. What does not change from call to call is packed once: a packed command is the header of an
array and its elements in a row, so a request is put together from the script's part, the resource's and its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import hiredis

from leasehold._core import ops
from leasehold._core.light_typing import Any, cast, make_tuple
from leasehold._core.names import matches
from leasehold._core.policy import forgotten_after_ms
from leasehold._core.rules import MUTEX, ONLY_SLOT
from leasehold._core.types import AuditNote, Door, Grant, Unreadable, Waiter, public_owner
from leasehold.stores.redis.lua import assemble

FOLDER = Path(__file__).parent / "scripts"
KEYS = ("owner", "fence", "queue", "more", "holders", "watchers")
COUNT = len(KEYS)
SHARED = ("owner", "holders", "queue", "watchers", "more")  # the keys that a plain renewal of a shared lease reads
EMPTY = "-"
PINGED = "lock:v1:ping"  # of which there is no key
WITHOUT_KEYS = ("scan", "leaks")
MOST_NOTE_BYTES = 8192  # the script cuts longer ones

Command = tuple[Any, ...]


_hiredis_pack = cast("Callable[[Command], bytes]", hiredis.pack_command)


def pack(command: Command) -> bytes:
    """The bytes to send. hiredis gets texts only: it would convert a number by itself, and crash when a signal handler
    raises in the middle of that."""
    return _hiredis_pack(tuple([part if type(part) is not int else str(part) for part in command]))


class Script:
    """A Lua script, put together from its own file and the parts that it includes."""

    __slots__ = ("head", "name", "sha", "text")

    def __init__(self, name: str, arguments: int) -> None:
        self.name = name
        self.text = assemble(FOLDER, name)
        if name not in WITHOUT_KEYS:
            self.text = f"local function script()\n{self.text}\nend\n{assemble(FOLDER, '_named')}"
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self.head = _head(self.sha, len(KEYS) + arguments)  # the packed command up to its keys


def _head(sha: str, following: int) -> bytes:
    packed = pack(("EVALSHA", sha, len(KEYS), *[""] * following))
    return packed[: -following * len(_elements(("",)))]


def _elements(values: tuple[Any, ...]) -> bytes:
    """Packed, without the array's header."""
    packed = pack(values)
    return packed[packed.index(b"\n") + 1 :]


CLAIM, BEAT, RENEW, RELEASE, WITHDRAW, INSPECT, WATCH, RESIZE, EVICT, REVOKE, ADOPT, SCAN, LEAKS = ONE_BY_ONE = (
    Script("claim", 6),
    Script("beat", 3),
    Script("renew", 10),
    Script("release", 4),
    Script("withdraw", 2),
    Script("inspect", 2),
    Script("watch", 2),
    Script("resize", 2),
    Script("evict", 6),
    Script("revoke", 3),
    Script("adopt", 6),
    Script("scan", 2),
    Script("leaks", 2),
)
RENEW_MANY, RENEW_SHARED, CLAIM_ALL, RELEASE_ALL = MANY = (  # for several resources, with any number of arguments
    Script("renew_many", 0),
    Script("renew_shared", 0),
    Script("claim_all", 0),
    Script("release_all", 0),
)
SCRIPTS = (*ONE_BY_ONE, *MANY)
_by_sha = {script.sha: script for script in SCRIPTS}


def keys(resource: str) -> tuple[str, ...]:
    """The keys of one resource: all in one slot of a Cluster."""
    return tuple([f"lock:v1:{{{resource}}}:{key}" for key in KEYS])


def _with_notes(resource: str) -> tuple[str, ...]:
    """The keys for scripts that write or read the audit notes of operators."""
    return *keys(resource), f"lock:v1:{{{resource}}}:notes"


@lru_cache(maxsize=1024)  # about a kilobyte each: names that are used again and again, not every lease
def _packed_keys(resource: str) -> bytes:
    return _elements(keys(resource))


def _texts(*texts: str | bytes) -> bytes:
    """The same as ``_elements``, faster, for texts alone."""
    packed = _hiredis_pack(texts)
    return packed[packed.index(b"\n") + 1 :]


@lru_cache(maxsize=256)
def _packed(*values: Any) -> bytes:
    """Arguments that are the same for many calls."""
    return _elements(values)


def with_text(command: Command) -> Command:
    """The same command for a server that does not have the script: after a restart, say."""
    if command[0] != "EVALSHA":
        return command
    return ("EVAL", _by_sha[command[1]].text, *command[2:])


# ---------------------------------------------------------------- ops as commands


def _claim(op: ops.Claim) -> Command:
    return ("EVALSHA", CLAIM.sha, COUNT, *keys(op.resource), *_claim_values(op))


def _claim_values(op: ops.Claim) -> Command:
    return (op.owner, op.floor, op.ttl_ms, *_static_claim_values(op), _bytes(op.meta) if op.meta else "")


def _static_claim_values(op: ops.Claim) -> tuple[str, str]:
    """What is the same for all claims of a lock: as the script's header names it."""
    record = f"0 0 {op.holder_address or EMPTY} {op.rule}"
    enqueue = 1 if op.enqueue else 0
    return record, f"{op.rule} {op.beat} {op.delay_ms} {enqueue} {op.permits} {op.limit} {op.address or EMPTY}"


def _beat(op: ops.Beat) -> Command:
    return ("EVALSHA", BEAT.sha, COUNT, *keys(op.resource), op.owner, op.beat, op.floor)


def _renew(op: ops.Renew) -> Command:
    return (
        "EVALSHA", RENEW.sha, COUNT, *keys(op.resource), op.owner, op.fence, op.ttl_ms, 1 if op.exact else 0, op.number,
        op.closed_ms, op.ticket or EMPTY, 1 if op.shared else 0, _bytes(op.meta) if op.meta else "", op.fences,
        1 if op.tell else 0,
    )  # fmt: skip


def _release(op: ops.Release) -> Command:
    return ("EVALSHA", RELEASE.sha, COUNT, *keys(op.resource), *_release_values(op))


def _release_values(op: ops.Release) -> Command:
    return (op.owner, op.fence, op.forget_ms, 1 if op.again else 0)


def _withdraw(op: ops.Withdraw) -> Command:
    return ("EVALSHA", WITHDRAW.sha, COUNT, *keys(op.resource), op.owner, op.forget_ms)


def _inspect(op: ops.Inspect) -> Command:
    return ("EVALSHA", INSPECT.sha, COUNT + 1, *_with_notes(op.resource), "", 1 if op.queue else 0)


def _watch(op: ops.Watch) -> Command:
    return ("EVALSHA", WATCH.sha, COUNT + 1, *_with_notes(op.resource), op.owner, op.address or EMPTY)


def _resize(op: ops.Resize) -> Command:
    return ("EVALSHA", RESIZE.sha, COUNT, *keys(op.resource), "", op.limit)


def _evict(op: ops.Evict) -> Command:
    return (
        "EVALSHA", EVICT.sha, COUNT + 1, *_with_notes(op.resource), _token(op.owner), op.fence, op.request,
        -1 if op.delay_ms is None else op.delay_ms, 1 if op.force else 0, _bytes(op.note),
    )  # fmt: skip


def _revoke(op: ops.Revoke) -> Command:
    return ("EVALSHA", REVOKE.sha, COUNT + 1, *_with_notes(op.resource), _token(op.owner), op.fence, _bytes(op.note))


def _adopt(op: ops.Adopt) -> Command:
    return (
        "EVALSHA", ADOPT.sha, COUNT, *keys(op.resource), op.adopter, op.fence, op.ticket or EMPTY, op.ttl_ms, op.floor,
        op.holder_address or EMPTY,
    )  # fmt: skip


def _scan(op: ops.Scan) -> Command:
    return ("EVALSHA", SCAN.sha, 0, op.cursor or "0", _bytes(f"lock:v1:{{{redis_glob(op.pattern)}}}:*"))


def _leaks(op: ops.Leaks) -> Command:
    return ("EVALSHA", LEAKS.sha, 0, op.cursor or "0", _bytes(op.pattern))


def _ping(op: ops.Ping) -> Command:
    """What the rights of a lease include, and a server that still loads its data refuses where it has a key. The key is
    one of the namespace, to which a login may be limited. No script: where those without keys are refused, this works
    all the same."""
    if op.versions:
        return ("INFO", "server")
    if op.keyless:
        return ("TIME",)
    return ("EXISTS", f"lock:v1:{{{op.namespace}/ping}}" if op.namespace else PINGED)


def _together(op: ops.Group) -> Command:
    names: list[str] = []
    values: list[Any] = []
    for step in op.steps:
        names += keys(step.resource)
        values += _claim_values(step) if isinstance(step, ops.Claim) else _release_values(step)
    script = CLAIM_ALL if isinstance(op.steps[0], ops.Claim) else RELEASE_ALL
    return ("EVALSHA", script.sha, len(names), *names, *values)


def redis_glob(pattern: str) -> str:
    """The same pattern for Redis, or a wider one: its ``?`` is one byte, and a character may have four. Stars that
    follow one another become one: some servers take long over them."""
    wider = "".join(["?*" if char == "?" else f"\\{char}" if char in "[]^\\" else char for char in pattern])
    return re.sub(r"\*+", "*", wider)


ENCODE: dict[type, Callable[[Any], Command]] = {
    ops.Claim: _claim,
    ops.Beat: _beat,
    ops.Renew: _renew,
    ops.Release: _release,
    ops.Withdraw: _withdraw,
    ops.Inspect: _inspect,
    ops.Watch: _watch,
    ops.Resize: _resize,
    ops.Evict: _evict,
    ops.Revoke: _revoke,
    ops.Adopt: _adopt,
    ops.Scan: _scan,
    ops.Leaks: _leaks,
    ops.Ping: _ping,
    ops.Group: _together,
}


def command(op: ops.StoreOp) -> Command:
    return ENCODE[type(op)](op)


def request(op: ops.StoreOp) -> bytes:
    """The packed command."""
    kind = type(op)
    if kind in QUICK:
        return QUICK[kind](op)
    return pack(ENCODE[kind](op))


def _quick_claim(op: ops.Claim) -> bytes:
    meta = _bytes(op.meta) if op.meta else ""
    values = (op.owner, str(op.floor), str(op.ttl_ms), *_static_claim_values(op), meta)
    return b"".join((CLAIM.head, _packed_keys(op.resource), _texts(*values)))


def _quick_release(op: ops.Release) -> bytes:
    _, owner, fence, forget_ms, again, _ = op
    rest = _packed(forget_ms, 1 if again else 0)
    return b"".join((RELEASE.head, _packed_keys(op.resource), _texts(owner, str(fence)), rest))


# Every acquire sends these two.
QUICK: dict[type, Callable[[Any], bytes]] = {ops.Claim: _quick_claim, ops.Release: _quick_release}


def plain(op: ops.StoreOp) -> bool:
    """True for a renewal that may be sent in one script with hundreds of others."""
    return type(op) is ops.Renew and not (
        op.exact or op.closed_ms or op.ticket or op.shared or op.meta or op.durability or op.fences
    )


def renewals(many: Iterable[tuple[str, str, int, int, int]]) -> Command:
    """One command for many plain renewals of leases that are held alone: resource, owner, fence, ttl_ms, number of
    each. The reply lists the places of those that were not renewed, counted from 1."""
    names: list[Any] = []
    values: list[Any] = []
    for resource, owner, fence, ttl_ms, number in many:
        names.append(f"lock:v1:{{{resource}}}:owner")  # not cached: there may be thousands
        values.append(f"{fence} {owner} {ttl_ms} {number} ")
    return ("EVALSHA", RENEW_MANY.sha, len(names), *names, *values)


def shared_renewals(many: Iterable[tuple[str, str, int, int, int]]) -> Command:
    """The same for leases that others share."""
    names: list[Any] = []
    values: list[Any] = []
    for resource, owner, fence, ttl_ms, number in many:
        prefix = f"lock:v1:{{{resource}}}:"
        names += [prefix + key for key in SHARED]
        values += (owner, fence, ttl_ms, number)
    return ("EVALSHA", RENEW_SHARED.sha, len(names), *names, *values)


def without_pushes(op: ops.StoreOp) -> ops.StoreOp:
    """The same op, without an address for pushes."""
    if isinstance(op, ops.Claim):
        return op._replace(address="")
    if isinstance(op, ops.Watch):
        return op._replace(address="")
    if isinstance(op, ops.Group):
        steps: Any = tuple([without_pushes(step) for step in op.steps])
        return op._replace(steps=steps)
    return op


# ---------------------------------------------------------------- replies


def _text(value: Any) -> str:
    """A string as the connection returns it: bytes, or text with ``decode_responses``."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # not written by us
        return value.decode("utf-8", "replace")


def _bytes(text: str) -> bytes:
    """A lone surrogate in the metadata must not make it unwritable."""
    return text.encode("utf-8", "surrogatepass")


def _owner(value: Any) -> str:
    """An owner, whatever its bytes are: ``_token`` returns the same bytes, to name that holder by."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _token(owner: str) -> bytes:
    return owner.encode("utf-8", "surrogateescape")


def _field(value: str) -> str:
    return "" if value == EMPTY else value


def _queued(reply: Any, op: Any) -> ops.Queued:
    holder = _text(reply[3])
    return ops.Queued(reply[1], reply[2], public_owner(holder) if holder else "", reply[4] == 1, reply[5])


def _busy(reply: Any, op: Any) -> ops.Busy:
    holder = _text(reply[1])
    return ops.Busy(public_owner(holder) if holder else "", reply[2], reply[3])


def _granted(reply: Any, op: Any) -> ops.Granted:
    if len(reply) == 3:  # a mutex
        return ops.Granted(reply[1], reply[2])
    _, fence, remaining_ms, slots, limit, rule = reply
    return ops.Granted(fence, remaining_ms, _slots(_text(slots)), limit, _text(rule))


def _renewed(reply: Any, op: Any) -> ops.Renewed:
    if len(reply) == 2:
        return ops.Renewed(reply[1])
    _, remaining_ms, first, last, others = reply
    return ops.Renewed(remaining_ms, first, last, others == 1)


def _slots(text: str) -> tuple[int, ...]:
    return ONLY_SLOT if text == "0" else tuple([int(slot) for slot in text.split(",")])


def _view(reply: Any, op: Any) -> ops.View:
    _, now_ms, closed_ms, fence, held, queue, notes, doors, limit, strange = reply
    unreadable = [Unreadable(_text(key), _text(why), blocks == 1) for key, why, blocks in strange]
    holders = tuple([_grant(one) for one in held])
    waiters = _readable(
        unreadable, f"lock:v1:{{{op.resource}}}:more", "has a field that is no waiter",
        lambda at: _waiter(_text(queue[at]), _text(queue[at + 1])), range(0, len(queue), 2),
    )  # fmt: skip
    noted = _readable(unreadable, f"lock:v1:{{{op.resource}}}:notes", "has an entry that is no note", _note, notes)
    places = tuple(sorted([_door(one) for one in doors]))
    return ops.View(holders, waiters, fence, closed_ms, now_ms, noted, places, limit, tuple(unreadable))


def _readable(
    unreadable: list[Unreadable], key: str, why: str, read: Callable[[Any], Any], records: Sequence[Any]
) -> tuple[Any, ...]:
    """The records that can be read. Scripts return these as they are stored, and another program may have written
    them."""
    found = []
    for one in records:
        try:
            found.append(read(one))
        except ValueError:
            if Unreadable(key, why) not in unreadable:
                unreadable.append(Unreadable(key, why))
    return tuple(found)


def _whole(text: str) -> int:
    """A number as we write it: ``int`` would also take a sign, spaces, underscores and any number of digits."""
    if len(text) > 16 or not (text.isascii() and text.isdecimal()):
        raise ValueError("no number")
    return int(text)


def _grant(held: Sequence[Any]) -> Grant:
    owner = _owner(held[0])
    (
        fence, ttl_ms, expires_ms, renewals, since_us, closed, delay_ms, rule, limit, slots, address, ticket, repeated,
        tell, meta,
    ) = map(_text, held[1:])  # fmt: skip
    return Grant(
        owner, int(fence), int(ttl_ms), int(expires_ms), rule, _slots(slots), int(since_us), meta, _field(address),
        int(delay_ms), _field(ticket), int(closed), int(renewals), int(limit), repeated == "1", tell == "1",
    )  # fmt: skip


def _door(place: Sequence[Any]) -> Door:
    rule, slots, until_ms, length_ms = map(_text, place)
    return Door(rule, _slots(slots), int(until_ms), int(length_ms))


def _waiter(owner: str, raw: str) -> Waiter:
    fields = raw.split(" ", 13)
    (
        until_ms,
        _,
        repeated,
        beat,
        ttl_ms,
        floor,
        since_us,
        delay_ms,
        rule,
        permits,
        limit,
        address,
        holder_address,
        meta,
    ) = fields
    beat_ms = int(until_ms) - 1 - forgotten_after_ms(int(ttl_ms))
    return Waiter(
        owner, int(ttl_ms), int(beat), beat_ms, _field(address), int(floor), rule, int(permits), int(limit),
        int(since_us), meta, _field(holder_address), int(delay_ms), repeated == "1",
    )  # fmt: skip


def _note(raw: Any) -> AuditNote:
    if len(raw) >= MOST_NOTE_BYTES:
        raise ValueError("too long")
    at_us, event, fence, owner, text = _text(raw).split(" ", 4)
    return AuditNote(_whole(at_us), event, owner, _whole(fence), text)


def _page(reply: Any, op: Any) -> ops.Page:
    cursor = _text(reply[1])
    items: list[str] = []
    unreadable: list[str] = []
    for item in reply[2]:
        raw = item if isinstance(item, bytes) else _bytes(item)
        name = raw.decode("utf-8", "backslashreplace")  # two names that are no text stay different
        if not isinstance(op, ops.Scan):
            items.append(name)
        elif matches(op.pattern, name):  # every name of ours is UTF-8, so no other can be meant
            (items if name.encode() == raw else unreadable).append(name)
    withheld = isinstance(op, ops.Scan) and bool(reply[3])
    return ops.Page(tuple(items), "" if cursor == "0" else cursor, tuple(unreadable), withheld)


def _replies(reply: Any, op: Any) -> ops.Replies:
    replies: Any = [
        decode(one, step) for one, step in zip(reply[1:], op.steps, strict=False)
    ]  # a refusal ends the group early
    return ops.Replies(tuple(replies))


def _refused(reply: Any, op: Any) -> ops.Rejected:
    if isinstance(op, ops.Evict):
        return ops.Rejected(f"the holder may work for {reply[1]} ms more: a shorter delay needs force=True")
    why = _text(reply[1])
    if why == "rule":
        return ops.Rejected(f"no rule {op.rule!r}")
    if why == "permits":
        return ops.Rejected(f"{reply[2]} permits were asked for, and there are only {reply[3]}")
    return ops.Rejected(f"the fence floor {op.floor} is negative, near 2**53 or more than ten years ahead of the clock")


RELEASED, NOT_FOUND = ops.Released(), ops.Released(found=False)

DECODE: tuple[Callable[[Any, Any], ops.Reply], ...] = (
    _granted,
    _queued,
    _busy,
    lambda reply, op: ops.NoClaim(_text(reply[1])),
    _renewed,
    lambda reply, op: RELEASED if reply[1] else NOT_FOUND,
    lambda reply, op: ops.NotYours(_text(reply[1])),
    lambda reply, op: ops.Withdrawn(_text(reply[1])),
    _view,
    lambda reply, op: ops.Evicted(reply[1], reply[2]),
    _refused,
    lambda reply, op: ops.HolderAsked(reply[1] == 1),
    _page,
    lambda reply, op: ops.Resized(reply[1]),
    _replies,
)


def _pong(reply: Any, op: ops.Ping) -> ops.Page:
    """A client of the user's may have made a dictionary of what INFO says."""
    if not op.versions:
        return ops.Page((), "")
    if not isinstance(reply, dict):
        reply = dict(line.split(":", 1) for line in _text(reply).splitlines() if ":" in line)
    fields = {_text(name): _text(value) for name, value in reply.items()}
    named = [f"{server} {fields[name]}" for server, name in VERSIONS.items() if name in fields]
    return ops.Page(tuple(named[:1]), "")


VERSIONS = {"Valkey": "valkey_version", "Redis": "redis_version"}  # Valkey has both


def decode(reply: Any, op: ops.StoreOp) -> ops.Reply:
    if type(op) is ops.Ping:
        return _pong(reply, op)
    decoder: Callable[[Any, Any], ops.Reply] = DECODE[reply[0] - 1]
    return decoder(reply, op)


def push(address: str, message: Any) -> ops.Push | None:
    """The push that a script published to that address; None for a message that no script of ours would publish."""
    try:
        event, written, beat, remaining_ms, slots, owner, resource = _text(message).split(" ", 6)
        event, _, more = event.partition("+")
        fence = int(written)
        last = fence + int(more) if more else 0
        return ops.Push(address, event, resource, owner, fence, int(beat), int(remaining_ms), _slots(slots), last)
    except ValueError:
        return None


# ---------------------------------------------------------------- first claims
#
# Every acquire sends one. What is the same in all of those of a lock is packed once.


def prepared_claim(op: ops.Claim) -> Callable[[str, int], bytes]:
    """(owner, floor) -> this claim as of that owner, with that floor, packed."""
    _, _, *static, meta = _claim_values(op)
    head, tail = CLAIM.head + _packed_keys(op.resource), _elements((*static, meta))

    def packed(owner: str, floor: int) -> bytes:
        return b"".join((head, _texts(owner, str(floor)), tail))

    return packed


def plain_grant(reply: Any) -> ops.Granted | None:
    """The grant of a mutex, the usual reply to such a claim; None for any other reply."""
    if type(reply) is list and len(reply) == 3 and reply[0] == 1:
        return make_tuple(ops.Granted, (reply[1], reply[2], ONLY_SLOT, 0, MUTEX))
    return None
