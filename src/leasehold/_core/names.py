"""Names of resources: the text form ``namespace/kind:id:id``, the same in keys, guards, CLI and ``inspect``.

The format is frozen: a table of inputs and names in the tests never changes. Text is UTF-8 and is not folded;
``% { } : /`` and control bytes inside a part are percent-encoded, so that no two resources share a name.
"""

from __future__ import annotations

import sys

from leasehold._core.light_typing import TYPE_CHECKING, lru_cache
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID

MAX_NAME_BYTES = 512
_SPECIAL = frozenset("%{}:/" + "".join(map(chr, range(0x20))) + "\x7f")
_ESCAPES = str.maketrans({char: f"%{ord(char):02X}" for char in _SPECIAL})


class Name:
    """A resource: its text and its low-cardinality kind; ``hidden`` says that its ids are hashed already, ``open`` that
    messages may show them."""

    __slots__ = ("_id_hash", "hidden", "kind", "open", "text")

    def __init__(self, text: str, kind: str, hidden: bool = False, open: bool = False) -> None:  # noqa: A002  # the usual word
        self.text = text
        self.kind = kind
        self.hidden = hidden
        self.open = open
        self._id_hash: str | None = None  # until it is needed

    @property
    def id_hash(self) -> str:
        """What logs show in place of the ids: 12 hex digits, keyed where there is a key."""
        if self._id_hash is None:
            self._id_hash = self._hashed()
        return self._id_hash

    def _hashed(self) -> str:
        if self.text == self.kind or self.text.endswith("/" + self.kind):
            return ""
        return self.text.rpartition(":")[2][:12] if self.hidden else _digest(self.text, b"")[:12]

    @property
    def shown(self) -> str:
        """The public form: the kind, and the hash of the ids. The whole name if it is open."""
        if self.open:
            return self.text
        return f"{self.kind}#{self.id_hash}" if self.id_hash else self.kind

    @property
    def label(self) -> str:
        """What the message of an error calls it: its kind. The whole name if it is open."""
        return self.text if self.open else self.kind


def make_name(namespace: str, kind: object, ids: tuple[object, ...], key: bytes | None = b"") -> Name:
    """Check the parts and join them. With a key the ids are replaced by 128 bits of keyed BLAKE2b; if it is None, they
    are no secret at all."""
    label = part(kind, "kind")
    text = prefix = f"{namespace}/{label}" if namespace else label
    for one in ids:
        text = f"{text}:{part(one, 'id')}"
    if len(text) * 4 > MAX_NAME_BYTES and (size := len(text.encode())) > MAX_NAME_BYTES:
        raise InvalidRequest(
            f"the name of a resource takes at most {MAX_NAME_BYTES} bytes, this one {size}: hash long ids first"
        )
    if key and ids:
        return Name(f"{prefix}:{_digest(text, key)}", label, hidden=True)
    return Name(text, label, open=key is None)


def parse_name(text: str, key: bytes | None = b"") -> Name:
    """The name that a text form stands for, as it is in the store of those who have this key. Programs without it may
    have stored ids as they are: their beginning must not be taken for a hash, and shown as one."""
    head, _, ids = text.partition(":")
    return Name(text, head.rpartition("/")[2], hidden=bool(key) and is_digest(ids), open=key is None)


def resource_names(namespace: str, text: object, key: bytes | None = b"") -> list[Name]:
    """The names that a typed ``kind:id:id`` may mean, in this namespace unless it names another. With a key its ids are
    hidden. 32 hex digits may be an id like any other, or one that a scan has shown, which is hidden already: then there
    are two names."""
    if not isinstance(text, str):
        raise InvalidRequest(
            f"a resource is named by its text form, such as 'report-export:42', not {type(text).__name__}"
        )
    head, *ids = text.split(":")
    space, slash, label = head.rpartition("/")
    for one, what in ((space, "namespace"), (label, "kind"), *((one, "id") for one in ids)):
        if (one or what != "namespace" or slash) and part(_decoded(one, what), what) != one:
            raise InvalidRequest(
                f"the {what} in the name of a resource is written with %, {{, }} and / percent-encoded"
            )
    if not slash:
        space = namespace
    typed = make_name(space, _decoded(label, "kind"), tuple(_decoded(one, "id") for one in ids), key)
    if key and len(ids) == 1 and is_digest(ids[0]):
        return [typed, Name(f"{space}/{label}:{ids[0]}" if space else f"{label}:{ids[0]}", label, hidden=True)]
    return [typed]


def is_digest(one: str) -> bool:
    """Whether an id may be the 128 bits that a key makes of ids."""
    return len(one) == 32 and set(one) <= set("0123456789abcdef")


def _decoded(text: str, what: str) -> str:
    """One part without its percent-encoding."""
    if "%" not in text:
        return text
    head, *rest = text.split("%")
    try:
        return head + "".join(bytes.fromhex(one[:2]).decode("latin-1") + one[2:] for one in rest)
    except ValueError:
        raise InvalidRequest(f"the {what} has a % that begins no percent-encoded byte: write %25") from None


@lru_cache(maxsize=1024, typed=True)  # typed: 1 is an id, and True, which equals it, is none
def known_name(namespace: str, key: bytes | None, kind: object, *ids: object) -> Name:
    """``make_name`` with a cache, for ids that can be hashed: many programs use the same few names again and again."""
    return make_name(namespace, kind, ids, key)


def _digest(text: str, key: bytes) -> str:
    import hashlib  # loads OpenSSL, and most programs need no hash of ours

    return hashlib.blake2b(text.encode(), digest_size=16, key=key).hexdigest()


def part(value: object, what: str) -> str:
    """One part of a name, encoded."""
    text = plain(value, what)
    return text if _SPECIAL.isdisjoint(text) else text.translate(_ESCAPES)


def plain(value: object, what: str) -> str:
    """The text of one part. Refuses what would make two resources look alike, or one look like two."""
    if isinstance(value, str):
        text = value if type(value) is str else str.__str__(value)
    elif isinstance(value, int) and not isinstance(value, bool) and what == "id":
        if value.bit_length() > 1024:
            raise InvalidRequest("an id that is a number takes at most 1024 bits")
        return str(value) if type(value) is int else int.__repr__(value)
    elif what == "id" and "uuid" in sys.modules and isinstance(value, sys.modules["uuid"].UUID):
        text = str(value)
    elif what == "id" and "datetime" in sys.modules and isinstance(value, sys.modules["datetime"].date):
        return _day(value)
    else:
        allowed = "str, int, UUID or date" if what == "id" else "str"
        raise InvalidRequest(f"{what} must be {allowed}, not {type(value).__name__}")
    if not text:
        raise InvalidRequest(f"{what} must not be empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} holds a lone surrogate and cannot be written as UTF-8") from None
    return text


def _day(value: date) -> str:
    """``2026-11-16``. A moment has as many texts as there are time zones, so a datetime, which is a date as well, is
    refused."""
    import datetime

    if isinstance(value, datetime.datetime):
        raise InvalidRequest("id must be a date, not a datetime: write value.date(), or the text that you mean")
    return datetime.date.isoformat(value)


def check_namespace(value: object) -> str:
    """A namespace, encoded; the empty one is none."""
    return "" if value in (None, "") else part(value, "namespace")


def check_id_key(value: object) -> bytes:
    """The key that hides ids: 1 to 64 bytes, or none."""
    if value is None:
        return b""
    key = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if not isinstance(key, bytes) or not 1 <= len(key) <= 64:
        raise InvalidRequest("hide_ids must be text or bytes, 1 to 64 bytes long")
    return key


def check_pattern(pattern: object) -> str:
    """A pattern of keys, as Redis understands it."""
    if not isinstance(pattern, str) or not pattern:
        raise InvalidRequest("a pattern of keys is text such as 'lock:*'")
    return pattern


# ---------------------------------------------------------------- glob
#
# Patterns over the text form of resources: ``*`` is any text, ``?`` any one character, and everything else is itself.
#
# Brackets and backslashes mean nothing here: a name may hold them.


def matches(pattern: str, text: str) -> bool:
    """Does the whole text match? In time that grows with both lengths, whatever the pattern is."""
    at = place = 0
    star = held = -1  # where the last star stood, and where the text that it stands for ends
    while at < len(text):
        if place < len(pattern) and pattern[place] == "*":
            star, held = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", text[at]):
            at += 1
            place += 1
        elif star >= 0:  # let the last star stand for one character more
            held += 1
            at, place = held, star + 1
        else:
            return False
    return pattern[place:].strip("*") == ""


# ---------------------------------------------------------------- bucket
#
# A stable number for an id: spreads one hot resource, or a crowd of small ones, over n locks.
#
# The number is the first 8 bytes of the BLAKE2b of the id's text, read as a big-endian integer, modulo n. That is
# frozen: a table in the tests never changes, and a program in another language can compute the same.


MOST_BUCKETS = 2**20
DIGEST_BYTES = 8


def bucket(id: str | int | UUID | date, n: int) -> int:  # noqa: A002 - the pinned name, and the word everywhere else
    """A number in ``range(n)`` for this id: the same in every process, on every Python, for ever.

    Ids follow the rules of names: ``42`` and ``"42"`` are the same one. ``n`` is between 1 and 2**20. All
    processes that share the locks must use the same ``n``: with another one most ids get another number.

    >>> import leasehold
    >>> leasehold.bucket(42, 16) == leasehold.bucket("42", 16)
    True
    >>> with leasehold.connect("memory://") as hold, hold.lock("counter", leasehold.bucket("user-42", 16)) as lease:
    ...     lease.resource
    'counter:12'
    """
    _check_number(n)
    import hashlib  # loads OpenSSL, and most programs need no hash of ours

    digest = hashlib.blake2b(plain(id, "id").encode()).digest()
    return int.from_bytes(digest[:DIGEST_BYTES], "big") % n


def _check_number(n: object) -> None:
    if not isinstance(n, int) or isinstance(n, bool):
        raise InvalidRequest(f"the number of buckets must be an int, not {type(n).__name__}")
    if not 1 <= n <= MOST_BUCKETS:
        raise InvalidRequest("the number of buckets must be between 1 and 2**20")
