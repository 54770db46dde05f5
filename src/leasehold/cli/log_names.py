"""What operators type in place of a name: one as messages and logs have it, ``report-export#2cfe7600489b``, or a
pattern. A hash is looked for among all that the store lists."""

from __future__ import annotations

import shlex
from string import hexdigits

from leasehold._core.names import is_digest, parse_name
from leasehold.cli.output import CommandEnded, ExitCode
from leasehold.coordinator import Leasehold
from leasehold.errors import InvalidRequest
from leasehold.primitives.inspection import Inspection

LEAST_DIGITS, MOST_DIGITS = 4, 12  # of a hash


def parsed(text: str) -> tuple[str, str] | None:
    """Kind, perhaps behind its namespace, and hash; None for a name of another form."""
    kind, _, digits = text.partition("#")
    return (kind, digits) if len(digits) == MOST_DIGITS and set(digits) <= set(hexdigits) else None


def check_digits(digits: str) -> None:
    """The value of ``--id-hash``."""
    if not LEAST_DIGITS <= len(digits) <= MOST_DIGITS or not set(digits) <= set(hexdigits):
        raise InvalidRequest(f"the hash of an id is {MOST_DIGITS} hex digits, or the first of them")


def found_by_hash(hold: Leasehold, where: str, digits: str, kind: str = "") -> list[Inspection]:
    """All that have it, of this kind if one is given. If there is none, the command ends: that is not the same as a
    resource that nobody holds."""
    listed = [one for one in hold.scan() if _has_hash(hold, one, digits.lower())]
    found = [one for one in listed if kind in ("", parse_name(one.resource).kind, one.resource.partition(":")[0])]
    if not found:
        text = f"no name in {where} has the hash {digits}: what is free, and has no notes, is not listed there"
        raise CommandEnded(ExitCode.NO, "unknown", text, id_hash=digits, store=hold.store)
    return found


def resource_of(hold: Leasehold, where: str, text: str) -> str:
    """The one resource that an operator means; any other text is a name already."""
    named = parsed(text)
    if named is None:
        return text
    kind, digits = named
    found = found_by_hash(hold, where, digits, kind)
    if len(found) > 1:
        raise InvalidRequest(f"{text} may be one of {', '.join(sorted([one.resource for one in found]))}: name it")
    return found[0].resource


def no_pattern(text: str) -> str:
    """For an answer that nobody holds this: the resources that the operator had in mind may be held."""
    if not set("*?") & set(text):
        return ""
    return f". It takes one name, not a pattern: `leasehold ls {shlex.quote(text)}` lists what matches"


def id_hash(hold: Leasehold, seen: Inspection) -> str:
    """What logs show in place of its ids; empty without ids."""
    return parse_name(seen.resource, hold._id_key).id_hash


def _has_hash(hold: Leasehold, seen: Inspection, digits: str) -> bool:
    """Ids that were hidden with a key which this process does not have are stored as what logs show of them."""
    stored = seen.resource.rpartition(":")[2]
    hidden = is_digest(stored) and stored.startswith(digits)
    return hidden or id_hash(hold, seen).startswith(digits)
