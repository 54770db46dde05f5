"""What a single flight leaves on the result store, and how long it counts: a value, an error, or both.

An entry says how old it is by the result store's own clock. An error that is written beside a value makes the
entry young
again: so it says how old the value was then. A value that could not be kept is an error for those who come later, for
as long as it would have been fresh. What was written later than now, because that clock was set back, counts as being
as old as it is ahead: else a value that is asked for again and again would be fresh for as long as the step was.
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
    """What was found. ``value`` is the sheet's, not loaded yet; None: there is none. Ages are in seconds."""

    text: str
    fence: int
    value: Any
    value_age: float
    error: Any
    age: float
    unkept: str | None  # the type of a value that could not be kept


class Freshness(NamedTuple):
    """How long what counts, in seconds."""

    fresh: float
    stale: float
    errors: float

    @property
    def keep(self) -> float:
        """A value in all."""
        return self.fresh + self.stale

    def usable(self, page: CachedValue | None) -> bool:
        """Is there a value that may be given to somebody?"""
        return page is not None and page.value is not None and page.value_age < self.keep

    def is_fresh(self, page: CachedValue) -> bool:
        return self.usable(page) and page.value_age < self.fresh

    def failed(self, page: CachedValue | None) -> bool:
        """Did the last rebuild fail so lately that nobody should try again?"""
        if page is None or page.error is None:
            return False
        return page.age < (self.errors if page.unkept is None else self.unkept)

    @property
    def unkept(self) -> float:
        """That a value could not be kept."""
        return max(self.fresh, self.errors)


def read_cached(entry: Entry | None, resource: str) -> CachedValue | None:
    """InvalidRequest: something else has written there."""
    if entry is None:
        return None
    fields = read_document(MARK, entry.text, resource)
    age = entry.age + entry.ahead
    value_age = age + fields.get("aged_ms", 0) / 1000
    return CachedValue(
        entry.text, entry.fence, fields.get("value"), value_age, fields.get("error"), age, fields.get("unkept")
    )


def value_text(serializer: Any, value: object, what: str) -> str:
    """A value as text. InvalidRequest: it cannot be written, or not be read again."""
    return document(MARK, {}, dump_value(serializer, value, what)[0])


def value_of(serializer: Any, text: str) -> Any:
    """A value of one's own: nobody else has the same object."""
    return load_value(serializer, json.loads(text)["value"])


def error_text(error: Exception, beside: CachedValue | None, unkept: str | None = None) -> str:
    """An error as text, and the value that still counts."""
    fields: dict[str, Any] = {"error": error_record(error)}
    if unkept is not None:
        fields["unkept"] = unkept
    if beside is None:
        return document(MARK, fields)
    fields["aged_ms"] = round(beside.value_age * 1000)
    return document(MARK, fields, compact(beside.value))


def error_of(page: CachedValue, resource: str) -> LeaseholdError:
    if page.unkept is not None:
        return not_kept(resource, page.fence, page.unkept)
    return remote_error(page.error, resource, page.fence)


def not_kept(resource: str, fence: int | None, what: str) -> ResultNotKept:
    """For all but the one who has made the value."""
    return ResultNotKept(
        f"{label(resource)} was rebuilt, and its value of type {what} could not be kept: only who rebuilt it has got "
        "it. It is not rebuilt again for as long as it would have been fresh; from then on return what can be kept "
        "(the log of the rebuild says why)",
        resource=resource,
        fence=fence,
    )
