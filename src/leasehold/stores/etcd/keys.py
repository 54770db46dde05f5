"""Where things are kept in etcd, and how keys and values are written in JSON: as base64.

    <prefix>/r/<resource>            the record
    <prefix>/w/<resource>//<owner>   a place in the queue, with the lease of the process that waits
    <prefix>/g/<resource>//<owner>   an owner that has withdrawn, with the same lease: no place is made for it any more
    <prefix>/n/<address>             news for a process, with its lease

Records have a range of their own, so that listing them reads nothing else. The name of a resource may hold one slash
but never two in a row, so that no place of one resource is in the range of another's.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from functools import lru_cache

from leasehold._core.light_typing import NamedTuple


def encoded(text: str) -> str:
    return b2a_base64(text.encode(), newline=False).decode()


def decoded(text: str) -> str:
    """What is no UTF-8 was not written by us; it is shown as well as it can be."""
    return a2b_base64(text).decode("utf-8", "replace")


class ResourceKeys(NamedTuple):
    """All as base64."""

    record: str
    places: str  # the first key that a place may have
    places_end: str  # the first one behind them


class Keys:
    """Those under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.records = f"{prefix}/r/"
        self.records_end = encoded(f"{prefix}/r0")  # 0 follows the slash
        self.of = lru_cache(maxsize=4096)(self._of)

    def _of(self, resource: str) -> ResourceKeys:
        places = f"{self.prefix}/w/{resource}/"
        return ResourceKeys(encoded(self.records + resource), encoded(f"{places}/"), encoded(f"{places}0"))

    def place(self, resource: str, owner: str) -> str:
        return f"{self.prefix}/w/{resource}//{owner}"

    def grave(self, resource: str, owner: str) -> str:
        return f"{self.prefix}/g/{resource}//{owner}"

    def news(self, address: str) -> str:
        return f"{self.prefix}/n/{address}"

    def behind(self, cursor: str) -> str:
        """The first key of a record behind this resource, as base64."""
        return encoded(f"{self.records}{cursor}\0" if cursor else self.records)

    def is_resource(self, name: str) -> bool:
        """Could it be a name of ours?"""
        return "\ufffd" not in name and all(name.split("/")) and name.count("/") <= 1
