"""Redis scripts that are wrong on purpose, each by one edit that somebody could make by mistake."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import pytest

from leasehold.stores.redis import speech


class Wrong(NamedTuple):
    """In every script that holds it, a piece of the text is replaced."""

    right: str
    wrong: str


WRONG_SCRIPTS = {
    "claims ignore the floor": Wrong("math.max(wall, floor + 1, last + 1)", "math.max(wall, last + 1)"),
    "fences are counted": Wrong("math.max(wall, floor + 1, last + 1)", "math.max(floor, last) + 1"),
    "release compares the owner alone": Wrong("local ours = holder == owner and grant.fence == fence",
                                              "local ours = holder == owner"),
    "nothing is published": Wrong("return redis.pcall('PUBLISH', address,", "return #tostring("),
    "one who does not listen is granted": Wrong("if heard == 0 and", "if heard == -1 and"),
    "numbers keep 14 digits": Wrong("string.format('%.0f', number)", "string.format('%.14g', number)"),
    "renewals of a batch shorten": Wrong("math.max(ms + ttl, tonumber(expires))", "ms + ttl"),
    "tombstones last for a millisecond": Wrong("redis.call('HSET', ENDED, owner, text(until_ms)",
                                               "redis.call('HSET', ENDED, owner, text(ms + 1)"),
    "a repeated claim is told of a whole ttl": Wrong("return {GRANTED, grant.fence, grant.expires - ms}",
                                                     "return {GRANTED, grant.fence, grant.ttl}"),
    "the door opens with the release": Wrong("close_until(closed)", "close_until(0)"),
    "the last comes first": Wrong("redis.call('RPUSH', QUEUE, owner)", "redis.call('LPUSH', QUEUE, owner)"),
}  # fmt: skip


def break_scripts(monkeypatch: pytest.MonkeyPatch, edit: Wrong) -> None:
    """Until the end of the test every script that holds the piece is wrong."""
    holding = [script for script in speech.SCRIPTS if edit.right in script.text]
    assert holding, f"no script says {edit.right!r} any more"
    for script in holding:
        text = script.text.replace(edit.right, edit.wrong)
        sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        monkeypatch.setattr(script, "text", text)
        monkeypatch.setattr(script, "sha", sha)
        monkeypatch.setitem(speech._by_sha, sha, script)
