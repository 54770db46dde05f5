"""What a holder says of itself: a JSON object of bounded size, kept with its grant and shown to whoever looks."""

from __future__ import annotations

from collections.abc import Mapping

from leasehold._core.light_typing import Any
from leasehold.errors import InvalidRequest

MOST_META_BYTES = 4096


def meta_text(meta: object) -> str:
    """As it is written down; refused when it cannot be."""
    if not isinstance(meta, Mapping):
        raise InvalidRequest(f"meta must be a mapping, not {type(meta).__name__}")
    return json_text(dict(meta), "meta")


def json_text(thing: Any, what: str) -> str:
    """Some JSON, which ``what`` names in the errors."""
    import json

    try:
        text = json.dumps(thing, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{what} cannot be written as JSON: {type(error).__name__}") from None
    if size > MOST_META_BYTES:
        raise InvalidRequest(f"{what} takes at most {MOST_META_BYTES} bytes as JSON")
    return text
