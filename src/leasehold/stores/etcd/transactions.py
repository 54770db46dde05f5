"""Requests as transactions of etcd in JSON, and replies out of theirs.

    request   condition                                      then                   else
    Look                                                     read
    Change    revisions, nobody waits, I am first, no place  put and delete         read
    List                                                     read a range
    Tell      somebody listens                               put, with its lease

Several requests are one transaction with a nested one for each, which decides alone. Zero and false are absent in the
JSON of etcd, and its 64-bit numbers are texts. So a condition of nothing but keys says that they have version 0: there
are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.stores.etcd.connection import Broken
from leasehold.stores.etcd.keys import Keys, ResourceKeys, decoded, encoded
from leasehold.stores.record.requests import (
    ANY,
    Change,
    Join,
    List,
    Listed,
    Look,
    Outcome,
    Part,
    Place,
    Record,
    Request,
    Sight,
    Tell,
)

MOST_OPS = 128  # of etcd, with nested ones: --max-txn-ops
MOST_NESTED = 64  # requests in one transaction: each of them has the other half for itself
MOST_PARTS = 60  # two conditions each, and two reads when they do not hold
MOST_BYTES = 1_000_000  # of one transaction; etcd takes 1.5 MB as it comes
NO_LEASE = 0
NOT_ETCD = "its reply is not one of etcd"


class Transactions:
    """Writes and reads transactions over the keys of one prefix."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    # ------------------------------------------------------------ writing

    def write(self, requests: Sequence[Request], lease: int) -> bytes:
        """One transaction for all of these, which go together: see ``together``."""
        if len(requests) == 1:
            return self._one(requests[0], lease).encode()
        if harmless(requests):  # without nested ones etcd knows that nothing is to be written, and asks no disk
            return f'{{"success":[{",".join(self._reads(request) for request in requests)}]}}'.encode()
        nested = ",".join(f'{{"request_txn":{self._one(request, lease)}}}' for request in requests)
        return f'{{"success":[{nested}]}}'.encode()

    def _one(self, request: Request, lease: int) -> str:
        kind = type(request)
        if kind is Change:
            return self._change(request.parts, lease)  # type: ignore[union-attr]  # its type was compared
        if kind is Tell:
            return self._tell(request)  # type: ignore[arg-type]  # the same
        return f'{{"success":[{self._reads(request)}]}}'

    def _reads(self, request: Request) -> str:
        if isinstance(request, Look):
            return ",".join(self._read(resource, request.texts) for resource in request.resources)
        assert isinstance(request, List)  # noqa: S101 # nothing else only reads
        return (
            f'{{"request_range":{{"key":"{self._keys.behind(request.cursor)}","range_end":"{self._keys.records_end}",'
            f'"limit":"{request.most}"}}}}'
        )

    def _read(self, resource: str, texts: bool = False) -> str:
        """The record and its places."""
        record, places, places_end = self._keys.of(resource)
        short = "" if texts else ',"keys_only":true'
        return (
            f'{{"request_range":{{"key":"{record}"}}}},{{"request_range":{{"key":"{places}","range_end":"{places_end}",'
            f'"sort_order":"ASCEND","sort_target":"CREATE"{short}}}}}'
        )

    def _tell(self, tell: Tell) -> str:
        key = encoded(self._keys.news(tell.address))
        return (
            f'{{"compare":[{{"key":"{key}","target":"CREATE","result":"GREATER","create_revision":"0"}}],'
            f'"success":[{{"request_put":{{"key":"{key}","value":"{encoded(tell.text)}","ignore_lease":true}}}}]}}'
        )

    def put(self, part: Part) -> bytes:
        """A change that writes a record, touches no places, and reads nothing when it is refused."""
        keys = self._keys.of(part.resource)
        conditions = _unchanged(keys, part) + (f",{_nobody_waits(keys)}" if part.nobody_waits else "")
        return f'{{"compare":[{conditions}],"success":[{_put(keys, part)}]}}'.encode()

    def _change(self, parts: Sequence[Part], lease: int) -> str:
        conditions: list[str] = []
        ops: list[str] = []
        for part in parts:
            self._write_part(part, lease, conditions, ops)
        reads = ",".join([self._read(part.resource) for part in parts])
        return f'{{"compare":[{",".join(conditions)}],"success":[{",".join(ops)}],"failure":[{reads}]}}'

    def _write_part(self, part: Part, lease: int, conditions: list[str], ops: list[str]) -> None:
        keys = record, places, places_end = self._keys.of(part.resource)
        if part.revision != ANY:
            conditions.append(_unchanged(keys, part))
        if part.text:
            ops.append(_put(keys, part))
        elif part.text is not None:
            ops.append(f'{{"request_delete_range":{{"key":"{record}"}}}}')
        if part.nobody_waits:
            conditions.append(_nobody_waits(keys))
        if part.first is not None:
            mine, number = encoded(part.first.key), part.first.number
            conditions.append(f'{{"key":"{mine}","target":"CREATE","create_revision":"{number}"}}')
            conditions.append(
                f'{{"key":"{places}","range_end":"{places_end}","target":"CREATE","result":"GREATER",'
                f'"create_revision":"{number - 1}"}}'
            )
            ops.append(f'{{"request_delete_range":{{"key":"{mine}"}}}}')
        if part.leave or part.bury:
            ops += self._leave(part, lease)
        if part.join is not None:
            mine = encoded(self._keys.place(part.resource, part.join.owner))
            grave = encoded(self._keys.grave(part.resource, part.join.owner))
            conditions += [f'{{"key":"{mine}"}}', f'{{"key":"{grave}"}}']
            text = encoded(part.join.text)
            ops.append(f'{{"request_put":{{"key":"{mine}","value":"{text}","lease":"{lease}"}}}}')
            ops.append(self._read(part.resource))
        elif part.text is None and part.revision:
            ops.append(f'{{"request_range":{{"key":"{record}"}}}}')

    def _leave(self, part: Part, lease: int) -> list[str]:
        ops = [f'{{"request_delete_range":{{"key":"{encoded(key)}"}}}}' for key in self._left(part)]
        if part.bury:
            grave = encoded(self._keys.grave(part.resource, part.bury))
            if lease == NO_LEASE:  # then no place of ours can be under way
                ops.append(f'{{"request_delete_range":{{"key":"{grave}"}}}}')
            else:
                ops.append(f'{{"request_put":{{"key":"{grave}","lease":"{lease}"}}}}')
        return ops

    def _left(self, part: Part) -> list[str]:
        """The places that are removed, each once."""
        buried = [self._keys.place(part.resource, part.bury)] if part.bury else []
        return list(dict.fromkeys([*[place.key for place in part.leave], *buried]))

    # ------------------------------------------------------------ reading

    def read(self, requests: Sequence[Request], found: dict[str, Any], lease: int) -> list[Any]:
        """The replies to what ``write`` was given. Raises Broken."""
        try:
            return self._replies(requests, found, lease)
        except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise Broken(NOT_ETCD) from error

    @staticmethod
    def revision(found: dict[str, Any]) -> int:
        """The one that etcd has now. Raises Broken."""
        try:
            return int(found["header"]["revision"])
        except (LookupError, TypeError, ValueError) as error:
            raise Broken(NOT_ETCD) from error

    def _replies(self, requests: Sequence[Request], found: dict[str, Any], lease: int) -> list[Any]:
        revision = self.revision(found)
        if len(requests) == 1:
            return [self._reply(requests[0], found, revision, lease)]
        answers = found.get("responses", [])
        if harmless(requests):
            rest = iter(answers)
            return [self._read_reply(request, islice(rest, reads(request)), lease) for request in requests]
        return [
            self._reply(request, answer["response_txn"], revision, lease)
            for request, answer in zip(requests, answers, strict=True)
        ]

    def _reply(self, request: Request, found: dict[str, Any], revision: int, lease: int) -> Any:
        done, answers = found.get("succeeded", False), iter(found.get("responses", ()))
        if type(request) is Change:
            if done:
                return Outcome(True, tuple([self._done(part, answers, revision, lease) for part in request.parts]))
            return Outcome(False, tuple([self._record(part.resource, answers, lease) for part in request.parts]))
        return done if type(request) is Tell else self._read_reply(request, answers, lease)

    def _read_reply(self, request: Request, answers: Iterator[Any], lease: int) -> Any:
        if isinstance(request, Look):
            return Sight(tuple([self._record(resource, answers, lease) for resource in request.resources]))
        return self._listed(next(answers)["response_range"])

    def _done(self, part: Part, answers: Iterator[Any], revision: int, lease: int) -> Record:
        """A part after it was carried out, past the answers to what it wrote."""
        left = len(self._left(part)) if part.leave or part.bury else 0
        writes = (part.text is not None) + (part.first is not None) + left + (part.join is not None) + bool(part.bury)
        for _ in range(writes):
            next(answers)
        if part.join is not None:
            return self._record(part.resource, answers, lease)
        if part.text is None and part.revision:
            return _one_record(part.resource, next(answers), None)
        return Record(part.resource, part.text or None, revision if part.text else 0, None)

    def _record(self, resource: str, answers: Iterator[Any], lease: int) -> Record:
        record, places = next(answers), next(answers)
        found = places["response_range"].get("kvs")
        return _one_record(resource, record, tuple([_place(one, lease) for one in found]) if found else ())

    def _listed(self, found: dict[str, Any]) -> Listed:
        rows = found.get("kvs", [])
        names = [decoded(row["key"]).removeprefix(self._keys.records) for row in rows]
        ours = self._keys.is_resource
        records = [
            Record(name, decoded(row.get("value", "")), int(row["mod_revision"]), None)
            for name, row in zip(names, rows, strict=True)
            if ours(name)
        ]
        return Listed(
            tuple(records), names[-1] if found.get("more") else "", tuple([name for name in names if not ours(name)])
        )


def _unchanged(keys: ResourceKeys, part: Part) -> str:
    return f'{{"key":"{keys.record}","target":"MOD","mod_revision":"{part.revision}"}}'


def _nobody_waits(keys: ResourceKeys) -> str:
    return f'{{"key":"{keys.places}","range_end":"{keys.places_end}"}}'


def _put(keys: ResourceKeys, part: Part) -> str:
    return f'{{"request_put":{{"key":"{keys.record}","value":"{encoded(part.text or "")}"}}}}'


def _one_record(resource: str, answer: dict[str, Any], places: tuple[Place, ...] | None) -> Record:
    found = answer["response_range"].get("kvs")
    if not found:
        return Record(resource, None, 0, places)
    return Record(resource, decoded(found[0].get("value", "")), int(found[0]["mod_revision"]), places)


def _place(found: dict[str, Any], lease: int) -> Place:
    key = decoded(found["key"])
    ours = lease != NO_LEASE and int(found.get("lease", NO_LEASE)) == lease
    return Place(key.rpartition("/")[2], int(found["create_revision"]), key, ours, decoded(found.get("value", "")))


# ---------------------------------------------------------------- which requests go together


def harmless(requests: Sequence[Request]) -> bool:
    """Do they only read?"""
    return all(type(request) in (Look, List) for request in requests)


def reads(request: Request) -> int:
    """How many ranges a request reads that only reads."""
    return 2 * len(request.resources) if isinstance(request, Look) else 1


def joins(requests: Sequence[Request]) -> list[tuple[str, Join]]:
    """The places that requests make, with their resources."""
    changes = [request for request in requests if type(request) is Change]
    return [(part.resource, part.join) for change in changes for part in change.parts if part.join is not None]


def buries(request: Request) -> bool:
    """Does it bury an owner?"""
    return type(request) is Change and any(part.bury for part in request.parts)


def together(requests: Sequence[Request]) -> list[list[int]]:
    """Which requests are sent together, by their numbers. No two of a transaction touch the same keys: etcd puts a key
    only once, and evaluates all conditions before it changes anything."""
    groups: list[list[int]] = []
    keys: set[str] = set()
    size = ranges = 0
    for number, request in enumerate(requests):
        extent = _extent(request)
        ranges += extent.ranges
        size += extent.size
        full = not groups or len(groups[-1]) == MOST_NESTED or size > MOST_BYTES or ranges > MOST_OPS
        if full or not keys.isdisjoint(extent.keys):
            groups.append([])
            keys, size, ranges = set(), extent.size, extent.ranges
        groups[-1].append(number)
        keys |= extent.keys
    return groups


class Extent(NamedTuple):
    """The keys that a request touches, about how many bytes it takes, and the ranges that it reads in any case."""

    keys: set[str]
    size: int
    ranges: int = 0


def _extent(request: Request) -> Extent:
    """What is too large to be one of many has the size of a whole transaction."""
    if isinstance(request, Look):
        alone = reads(request) > MOST_OPS - MOST_NESTED
        return Extent(set(request.resources), MOST_BYTES if alone else 200 * reads(request), reads(request))
    if isinstance(request, Tell):
        return Extent({f"//{request.address}"}, 600 + 2 * len(request.text))
    if isinstance(request, List):
        return Extent(set(), MOST_BYTES)
    ops = sum(4 + len(part.leave) + 2 * bool(part.bury) for part in request.parts)
    texts = sum(len(part.text or "") + len(part.join.text if part.join else "") for part in request.parts)
    alone = ops > MOST_OPS - MOST_NESTED
    size = MOST_BYTES if alone else 2 * texts + 1200 * len(request.parts)
    return Extent({part.resource for part in request.parts}, size)
