"""What the result store says about one key: that its work has begun, or its outcome.

    {"leasehold": "once/1", "state": "running", "print": "…", "tries": 1}
    {"leasehold": "once/1", "state": "done", "print": "…", "value": {"json": …}}
    {"leasehold": "once/1", "state": "done", "print": "…", "error": {"kinds": […], "message": "…"}}
    {"leasehold": "once/1", "state": "done", "print": "…", "unkept": "set"}

``tries`` counts the attempts that began and left no outcome, and the one that runs now.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from leasehold.errors import LeaseholdError, OutcomeUnknown
from leasehold.guards.fence import label
from leasehold.patterns.errors import KeyReused, ResultNotKept, error_record, remote_error
from leasehold.patterns.results.result_store import Entry
from leasehold.patterns.serialization import document, dump_value, load_value, read_document

MARK = "once/1"
RUNNING, DONE = "running", "done"


class OnceRecord(NamedTuple):
    """A record that was read."""

    resource: str
    fence: int
    fields: dict[str, Any]

    @property
    def done(self) -> bool:
        """Is there an outcome?"""
        return self.fields.get("state") == DONE

    @property
    def tries(self) -> int:
        """How many attempts began and left no outcome."""
        return int(self.fields.get("tries", 1))

    def check(self, fingerprint: str | None) -> None:
        """Raise KeyReused for another request. If one of both has no fingerprint, nothing is compared."""
        before = self.fields.get("print")
        if None not in (before, fingerprint) and before != fingerprint:
            raise KeyReused(
                f"this key of {label(self.resource)} was used with another body before: their fingerprints differ. "
                "Nothing was run. Repeat the request as it was, or use a new key for a new one",
                resource=self.resource,
            )

    def result(self, serializer: Any) -> Any:
        """The stored result, or raise the stored error."""
        if "error" in self.fields:
            raise remote_error(self.fields["error"], self.resource, self.fence)
        if "unkept" in self.fields:
            raise not_kept(self.resource, self.fence, str(self.fields["unkept"]))
        return load_value(serializer, self.fields.get("value"))


def read(entry: Entry | None, resource: str) -> OnceRecord | None:
    """The record in an entry. None: nothing is known about this key."""
    return None if entry is None else OnceRecord(resource, entry.fence, read_document(MARK, entry.text, resource))


def running(fingerprint: str | None, tries: int) -> str:
    return document(MARK, {"state": RUNNING, "print": fingerprint, "tries": tries})


def returned(fingerprint: str | None, serializer: Any, value: object, resource: str) -> tuple[str, Any]:
    """The record, and the value as it will be read from it. InvalidRequest: it cannot be kept."""
    text, read_again = dump_value(serializer, value, f"the result of {label(resource)}")
    return document(MARK, {"state": DONE, "print": fingerprint}, text), read_again


def raised(fingerprint: str | None, error: Exception) -> str:
    return document(MARK, {"state": DONE, "print": fingerprint, "error": error_record(error)})


def unkept(fingerprint: str | None, value: object) -> str:
    return document(MARK, {"state": DONE, "print": fingerprint, "unkept": type(value).__name__[:100]})


def not_kept(resource: str, fence: int | None, what: str) -> ResultNotKept:
    """The error for later callers."""
    return ResultNotKept(
        f"{label(resource)} ran, and its result of type {what} could not be kept. It does not run again under this "
        "key: look up what it did, and from now on return what can be kept (the log of the first call says why)",
        resource=resource,
        fence=fence,
    )


def reason(error: LeaseholdError) -> object:
    """Why it could not be kept. OutcomeUnknown has the result store's own error as its cause."""
    return error.__cause__ if isinstance(error, OutcomeUnknown) else error
