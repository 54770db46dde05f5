"""Tickets: a lease on its way to another process, as a short text that can travel in a message.

A ticket names one grant of one resource and holds the nonce that the store compares. It holds neither the owner token
nor anything else that could be used for another lease. A process that has it may adopt that lease, once.
"""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple
from leasehold._core.names import MAX_NAME_BYTES, parse_name
from leasehold.errors import InvalidRequest

MARK = "lh1."
NONCE_BYTES, FENCE_BYTES, TTL_BYTES, CHECK_BYTES = 16, 8, 4, 4
HEAD_BYTES = NONCE_BYTES + FENCE_BYTES + TTL_BYTES
WRONG = "that is no ticket: hand over the whole text that lease.transfer() gave"
_URL_SAFE = str.maketrans("+/", "-_")
_FROM_URL_SAFE = str.maketrans("-_", "+/")


class Ticket(NamedTuple):
    """The content of a ticket. The nonce is in hex, as the store compares it."""

    resource: str
    fence: int
    ttl_ms: int
    nonce: str

    def __repr__(self) -> str:
        """Without what makes it worth something: error reports show the values of variables."""
        return f"<Ticket for {parse_name(self.resource).shown} fence={self.fence}>"

    def text(self) -> str:
        from binascii import b2a_base64, crc32

        head = bytes.fromhex(self.nonce) + self.fence.to_bytes(FENCE_BYTES) + self.ttl_ms.to_bytes(TTL_BYTES)
        data = head + self.resource.encode()
        packed = b2a_base64(crc32(data).to_bytes(CHECK_BYTES) + data, newline=False).decode()
        return MARK + packed.translate(_URL_SAFE).rstrip("=")


class Transfer:
    """One call of ``transfer``: what its ticket says, and whether the lease was handed over by this call."""

    __slots__ = ("done", "nonce")

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.done = False


def read(text: object) -> Ticket:
    """A ticket, or InvalidRequest before anything is sent: messages are cut off, mixed up and mistyped."""
    if not isinstance(text, str) or not text.strip().startswith(MARK):
        raise InvalidRequest(WRONG)
    data = _unpacked(text.strip().removeprefix(MARK))
    try:
        resource = data[HEAD_BYTES:].decode()
    except UnicodeDecodeError:
        raise InvalidRequest(WRONG) from None
    if not 0 < len(data) - HEAD_BYTES <= MAX_NAME_BYTES:
        raise InvalidRequest(WRONG)
    fence = int.from_bytes(data[NONCE_BYTES : NONCE_BYTES + FENCE_BYTES])
    return Ticket(
        resource, fence, int.from_bytes(data[NONCE_BYTES + FENCE_BYTES : HEAD_BYTES]), data[:NONCE_BYTES].hex()
    )


def _unpacked(packed: str) -> bytes:
    from binascii import Error, a2b_base64, crc32

    try:
        data = a2b_base64((packed + "=" * (-len(packed) % 4)).translate(_FROM_URL_SAFE), strict_mode=True)
    except (Error, ValueError):
        raise InvalidRequest(WRONG) from None
    check, rest = data[:CHECK_BYTES], data[CHECK_BYTES:]
    if crc32(rest).to_bytes(CHECK_BYTES) != check:
        raise InvalidRequest(WRONG)
    return rest
