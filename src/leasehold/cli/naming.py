"""NAME on the command line: ``kind``, ``kind:id:id`` or, as ``leasehold ls`` shows it, ``namespace/kind:id``.

What is special inside a part is written as in the text form: ``%3A`` for a colon. So what ``ls`` prints can be typed.
"""

from __future__ import annotations

from leasehold.errors import InvalidRequest

HEX = frozenset("0123456789abcdefABCDEF")


def parse_name(text: str, namespace: str | None = None) -> tuple[str | None, str, list[str]]:
    """Namespace, kind and ids. A namespace in the name must be the one that was asked for, if any was."""
    prefix, slash, rest = text.rpartition("/")
    kind, *ids = [_plain(part, text) for part in rest.split(":")]
    if not slash:
        return namespace, kind, ids
    named = _plain(prefix, text)
    if namespace not in (None, named):
        raise InvalidRequest(f"the name {text} is not in the namespace {namespace}")
    return named, kind, ids


def _plain(part: str, whole: str) -> str:
    """Without percent signs. One that is no escape is refused: nobody should have to guess what was meant."""
    if not part or "/" in part:
        raise InvalidRequest(f"the name {whole!r} has an empty part, or more than one slash; inside a part write %2F")
    plain, *rest = part.split("%")
    data = plain.encode("utf-8", "surrogateescape")
    for one in rest:
        if len(one) < 2 or not HEX.issuperset(one[:2]):
            raise InvalidRequest(f"the name {whole!r} has a % that is no escape: write %25")
        data += bytes.fromhex(one[:2]) + one[2:].encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "surrogateescape")
