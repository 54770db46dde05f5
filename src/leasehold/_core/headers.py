"""A fence in HTTP headers: what ``lease.headers()`` sends and the middleware of a service reads.

    X-Fencing-Token      the fence, in decimal
    X-Fencing-Resource   the text form of the resource; a space and whatever is not ASCII is percent-encoded
    X-Fencing-Owner      <instance>:<pid>#<digest of the owner token>: names the owner, cannot release the lease
    X-Fencing-Mode       "shared" for a lease that may read and not write; else it is absent

The text form never holds ``%20`` or an escape above ``%7F`` of its own, so decoding these is unambiguous.
"""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple
from leasehold._core.types import owner_id

TOKEN = "X-Fencing-Token"  # noqa: S105 - the name of a header
RESOURCE = "X-Fencing-Resource"
OWNER = "X-Fencing-Owner"
MODE = "X-Fencing-Mode"
SHARED = "shared"

_DIGITS = frozenset("0123456789")


class Fencing(NamedTuple):
    """What a request brought. A guard takes it like a lease: ``guard.check(tx, fencing)``."""

    fence: int
    resource: str
    owner: str | None = None
    shared: bool = False


def encode(fence: int, resource: str, owner: str, shared: bool = False) -> dict[str, str]:
    """The headers of a lease."""
    headers = {TOKEN: str(fence), RESOURCE: _ascii(resource), OWNER: owner_id(owner)}
    return {**headers, MODE: SHARED} if shared else headers


def parse_fence(text: str) -> int | None:
    """A fence as it was sent; None for what no store can have minted: signs, spaces, zero, more than 64 bits."""
    if not text or len(text) > 19 or not _DIGITS.issuperset(text) or text[0] == "0":
        return None
    fence = int(text)
    return fence if fence < 2**63 else None


def parse_resource(text: str) -> str | None:
    """A resource as it was sent; None when it is not UTF-8."""
    before, *escapes = text.encode("latin-1", "replace").split(b"%")  # once: the header may be long, and all of it "%"
    out = bytearray(before)
    for rest in escapes:
        byte = _escaped(rest[:2])
        if byte is None:
            out += b"%" + rest
        else:
            out.append(byte)
            out += rest[2:]
    try:
        return out.decode()
    except UnicodeDecodeError:
        return None


def _ascii(resource: str) -> str:
    return "".join(chr(byte) if 0x20 < byte < 0x7F else f"%{byte:02X}" for byte in resource.encode())


def _escaped(code: bytes) -> int | None:
    """A space, or a byte that is not ASCII; every other escape belongs to the name."""
    try:
        byte = int(code, 16) if len(code) == 2 and code.isalnum() else 0
    except ValueError:
        return None
    return byte if byte == 0x20 or byte > 0x7F else None
