"""NAME of ``leasehold run``: ``kind``, ``kind:id:id`` or, as ``leasehold ls`` shows it, ``namespace/kind:id``.

It is the text form: what is special inside a part is percent-encoded, so that what ``ls`` prints can be typed.
"""

from __future__ import annotations

from leasehold._core.names import resource_names
from leasehold.errors import InvalidRequest


def parse_name(text: str, namespace: str | None = None) -> tuple[str | None, str, list[str]]:
    """Namespace, kind and ids, as ``connect`` and ``lock`` take them. A namespace in the name must be the one that was
    asked for, if any was."""
    resource_names("", text)  # refuses what is no text form
    head, *ids = text.split(":")
    prefix, slash, kind = head.rpartition("/")
    if slash and namespace not in (None, _plain(prefix)):
        raise InvalidRequest(f"the name {text} is not in the namespace {namespace}")
    return _plain(prefix) if slash else namespace, _plain(kind), [_plain(one) for one in ids]


def _plain(part: str) -> str:
    first, *rest = part.split("%")
    return first + "".join([chr(int(one[:2], 16)) + one[2:] for one in rest])
