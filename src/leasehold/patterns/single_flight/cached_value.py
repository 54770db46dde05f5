"""What a single flight leaves on the result store, and how long it counts: a value, an error, or both.

The age of an entry is measured by the result store's own clock. Writing an error beside a value makes the entry young
again, so the entry also says how old the value was then. A value that could not be kept is recorded as an error for
later callers, for as long as the value would have been fresh. An entry from the future, because that clock was set
back, counts as being as old as it is ahead: otherwise the value would be fresh for as long as the step was.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from leasehold.errors import LeaseholdError
from leasehold.guards.fence import label
from leasehold.patterns.errors import ResultNotKept, error_record, remote_error
from leasehold.patterns.results.result_store import Entry
from leasehold.patterns.serialization import compact, document, dump_value, load_value, read_document

MARK = "flight/1"


class CachedValue(NamedTuple):
    """An entry that was read. ``value`` is as the document has it, not loaded yet; None if there is none. Ages are in
    seconds."""

    text: str
    fence: int
    value: Any
    value_age: float
    error: Any
    age: float
    unkept: str | None  # the type of a value that could not be kept


class Freshness(NamedTuple):
    """How long values and errors count, in seconds."""

    fresh: float
    stale: float
    errors: float

    @property
    def keep(self) -> float:
        """How long a value is kept: while it is fresh, and while it is stale."""
        return self.fresh + self.stale

    def usable(self, cached: CachedValue | None) -> bool:
        """Is there a value, fresh or stale, that a caller may get?"""
        return cached is not None and cached.value is not None and cached.value_age < self.keep

    def is_fresh(self, cached: CachedValue) -> bool:
        return self.usable(cached) and cached.value_age < self.fresh

    def failed(self, cached: CachedValue | None) -> bool:
        """Did the last rebuild fail so recently that no caller should try again?"""
        if cached is None or cached.error is None:
            return False
        return cached.age < (self.errors if cached.unkept is None else self.unkept)

    @property
    def unkept(self) -> float:
        """How long it counts that a value could not be kept."""
        return max(self.fresh, self.errors)


def read_cached(entry: Entry | None, resource: str) -> CachedValue | None:
    """The entry of a result store. InvalidRequest: another pattern has written it."""
    if entry is None:
        return None
    fields = read_document(MARK, entry.text, resource)
    age = entry.age + entry.ahead
    value_age = age + fields.get("aged_ms", 0) / 1000
    return CachedValue(
        entry.text, entry.fence, fields.get("value"), value_age, fields.get("error"), age, fields.get("unkept")
    )


def value_text(serializer: Any, value: object, what: str) -> str:
    """A value as a document. InvalidRequest: it cannot be written, or not be read again."""
    return document(MARK, {}, dump_value(serializer, value, what)[0])


def value_of(serializer: Any, text: str) -> Any:
    """The value in a document, loaded anew: no two callers share one object."""
    return load_value(serializer, json.loads(text)["value"])


def error_text(error: Exception, beside: CachedValue | None, unkept: str | None = None) -> str:
    """An error as a document, together with the value that still counts."""
    fields: dict[str, Any] = {"error": error_record(error)}
    if unkept is not None:
        fields["unkept"] = unkept
    if beside is None:
        return document(MARK, fields)
    fields["aged_ms"] = round(beside.value_age * 1000)
    return document(MARK, fields, compact(beside.value))


def error_of(cached: CachedValue, resource: str) -> LeaseholdError:
    if cached.unkept is not None:
        return not_kept(resource, cached.fence, cached.unkept)
    return remote_error(cached.error, resource, cached.fence)


def not_kept(resource: str, fence: int | None, what: str) -> ResultNotKept:
    """The error for all callers but the one whose call made the value."""
    return ResultNotKept(
        f"{label(resource)} was rebuilt, and its value of type {what} could not be kept: only the caller that "
        "rebuilt it has it. It is not rebuilt again for as long as it would have been fresh; from then on return what "
        "can be kept (the log of the rebuild says why)",
        resource=resource,
        fence=fence,
    )
