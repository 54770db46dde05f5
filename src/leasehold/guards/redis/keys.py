"""The names of keys: the record of a resource, the keys of the caller, and the slot that they share on a Cluster.

    guard:v1:{<tag>}              the record, when the tag is the resource itself
    guard:v1:{<tag>}:<resource>   and when it is not

The tag decides the slot. By default it is the resource, braces percent-encoded: a name from elsewhere may hold some,
and the first ``}`` would end the tag. Two resources never have the same record, whatever the tags are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leasehold.errors import InvalidRequest
from leasehold.guards.fence import check_resource

Tag = Callable[[str], str]
Key = str | bytes
RECORD = "guard:v1:"
_BRACES = str.maketrans({"{": "%7B", "}": "%7D"})


class Keys:
    """The key names of one guard. ``slot`` is the client's own function for the slot of a key; None: no Cluster."""

    __slots__ = ("_slot", "_tag")

    def __init__(self, tag: Tag | None, slot: Callable[[Key], int] | None) -> None:
        if tag is not None and not callable(tag):
            raise InvalidRequest(
                "tag is a function from the name of a resource to the hash tag of its keys, such as "
                "lambda resource: resource.rpartition(':')[2]"
            )
        self._tag = tag
        self._slot = slot

    def tag(self, resource: str) -> str:
        """What stands between the braces of every key of this resource."""
        if self._tag is None:
            return resource.translate(_BRACES) if "{" in resource or "}" in resource else resource
        tag: object = self._tag(resource)
        if not isinstance(tag, str) or not tag or "{" in tag or "}" in tag or not _writable(tag):
            raise InvalidRequest("tag= must return the text that stands between the braces of your keys, without them")
        return str.__str__(tag)  # str() of an Enum that is text would return its name

    def record(self, resource: str) -> bytes:
        """As bytes: clients with different encodings must find the same one."""
        tag = self.tag(resource)
        return f"{RECORD}{{{tag}}}{'' if tag == resource else ':' + resource}".encode()

    def key(self, name: object, resource: object) -> str:
        """A key of the caller's in the slot of the record."""
        if not isinstance(name, str) or not name:
            raise InvalidRequest("a key is named by text, such as guard.key('body', lease)")
        return f"{{{self.tag(check_resource(resource))}}}:{str.__str__(name)}"

    def check_slots(self, keys: Sequence[Key], record: bytes) -> None:
        """On a Cluster: one script, one slot (trap 19)."""
        if self._slot is None:
            return
        mine = self._slot(record)
        if any(self._slot(key) != mine for key in keys):
            raise InvalidRequest(
                "on a Cluster a script reaches the keys of one slot, and this key is in another than the record of its "
                "resource: name it with guard.key('body', lease), or give the guard a tag= that returns the hash tag "
                "of your keys. Nothing was sent"
            )


def check_key(key: Any) -> Key:
    """A key of the caller's, checked. The key of a record is refused: writing it would undo the guard."""
    if not isinstance(key, (str, bytes)) or not key:
        raise InvalidRequest(f"a key is text or bytes, and not empty; this is {type(key).__name__}")
    if isinstance(key, str) and not _writable(key):
        raise InvalidRequest("the key holds a lone surrogate and cannot be written as UTF-8")
    if key.startswith(RECORD) if isinstance(key, str) else key.startswith(RECORD.encode()):
        raise InvalidRequest(
            f"keys that begin with {RECORD} are the records of guards: not to be read or written through one"
        )
    return key


def check_keys(keys: Any) -> tuple[Key, ...]:
    """Several keys, checked. A single text is refused: it would be taken for its letters."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence):
        raise InvalidRequest("keys is a list of keys")
    return tuple([check_key(key) for key in keys])


def _writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
