"""Redis scripts that are wrong on purpose, each in one way that somebody could write by mistake.

A few words are put before a script: they change its arguments, which its header names, or what it says to the server.
So nothing here depends on how a script is written otherwise.
"""

from __future__ import annotations

import hashlib
import re

import pytest

from leasehold.stores.redis import protocol

EVERY = "every script"
NUMBERS = (
    "local real = string local string = setmetatable({{format = function(form, ...)\n{0}\nend}}, {{__index = real}})\n"
)
COMMANDS = (
    "local real = redis local function call(name, ...)\n{0}\nreturn real.call(name, ...) end\n"
    "local redis = setmetatable({{call = call, pcall = call}}, {{__index = real}})\n"
)

OPTION = "ARGV[{{options}}] = string.gsub(ARGV[{{options}}], '{0}', '{1}')"

# Which scripts, and what stands before them. In braces: the place of an argument.
WRONG_SCRIPTS: dict[str, dict[str, str]] = {
    "the floor is forgotten (trap 14)": dict.fromkeys(["claim", "beat"], "ARGV[{floor}] = '0'"),
    "numbers keep 14 digits (trap 17)": {
        EVERY: NUMBERS.format("return real.format(real.gsub(form, '%%.0f', '%%.14g'), ...)"),
    },
    "nothing is published (trap 24)": {EVERY: COMMANDS.format("if name == 'PUBLISH' then return 1 end")},
    "one who does not listen is granted (trap 25)": {
        EVERY: COMMANDS.format("if name == 'PUBLISH' then return math.max(1, real.call(name, ...)) end"),
    },
    "one who gave up is forgotten (trap 10)": {
        "withdraw": "ARGV[{forget_ms}] = '0'",
        "release": "ARGV[{forget_ms}] = '0'",
    },
    "a late renewal shortens (trap 44)": {"renew": "ARGV[{exact}], ARGV[{number}] = '1', '99'"},
    "release compares the owner alone": {
        "release": "ARGV[{fence}] = string.match(redis.call('GET', KEYS[1]) or '', '^%d+') or ARGV[{fence}]",
    },
    "the door opens with the release": {"renew": "ARGV[{closed_ms}] = '0'"},
    "a lock-delay is forgotten": {"claim": OPTION.format("^(%l+ %-?%d+) %d+", "%1 0")},
    "the last comes first": {EVERY: COMMANDS.format("if name == 'RPUSH' then return real.call('LPUSH', ...) end")},
    "a grant brings no fences": {"claim": OPTION.format("^(mutex %-?%d+ %d+ %d %d+) %d+", "%1 1")},
    "whoever asks once stays in line": {"claim": OPTION.format("^(%l+ %-?%d+ %d+) 0", "%1 1")},
    "an eviction needs no force": {"evict": "ARGV[{force}] = '1'"},
    "an eviction forgets why": {"evict": "ARGV[{note}] = ''"},
    "notes pile up": {"evict": COMMANDS.format("if name == 'LTRIM' then return end")},
    "notes last for a day": {
        "evict": COMMANDS.format(
            "if name == 'PEXPIREAT' and ... == KEYS[7] then return real.call('PEXPIRE', ..., 86400000) end"
        ),
    },
    "whoever keeps it unused is not told of a claim": {"renew": "ARGV[{tell}] = '0'"},
    "whoever asks again is noted again": {"revoke": COMMANDS.format("if name == 'LREM' then return 0 end")},
    "a request forgets why": {"revoke": "ARGV[{note}] = ''"},
    "whoever is asked to give back is not told": {"revoke": COMMANDS.format("if name == 'PUBLISH' then return 1 end")},
    "a holder who is gone was told": {
        "revoke": COMMANDS.format("if name == 'PUBLISH' then return math.max(1, real.call(name, ...)) end"),
    },
    "one who waits is not listed": {"scan": COMMANDS.format("if name == 'HMGET' then return {{}} end")},
    "what was noted is not listed": {
        "scan": COMMANDS.format("if name == 'LRANGE' and string.find(..., ':notes') then return {{}} end"),
    },
    "a tombstone has no end": {
        EVERY: COMMANDS.format("if name == 'PEXPIREAT' and string.find(..., ':more') then return 1 end"),
    },
    "any ticket will do": {"adopt": "ARGV[{ticket}] = 'right'"},
    "a writer goes on writing": {"renew": "ARGV[{shared}] = '0'"},
    "what a holder says of itself is lost": {"renew": "ARGV[{meta}] = ''"},
    "every claim is for one permit (trap 31)": {"claim": OPTION.format("^(%l+ %-?%d+ %d+ %d) %d+", "%1 1")},
    "a slot is given twice": {
        EVERY: COMMANDS.format(
            "local key, mark = ... if name == 'SET' and string.find(mark, '^:semaphore') then"
            " return real.call(name, key, (string.gsub(mark, '1$', '0')), select(3, ...)) end"
        ),
    },
    "what was shared is free at once": {
        EVERY: COMMANDS.format("if name == 'HSET' and select(2, ...) == ':doors' then return 1 end"),
    },
    "a limit is forgotten": {
        "resize": COMMANDS.format("if name == 'HSET' and select(2, ...) == ':limit' then return end"),
    },
    "whoever watches is not told": {
        EVERY: COMMANDS.format("if name == 'PUBLISH' and string.find(select(2, ...), '^changed') then return 1 end"),
    },
}


def arguments(name: str) -> dict[str, int]:
    """The place of each argument, as the header of the script has it."""
    header = (protocol.FOLDER / f"{name}.lua").read_text("utf-8")
    found = re.search(r"^-- +ARGV +(.+)$", header, re.MULTILINE)
    return {word.partition("(")[0]: at for at, word in enumerate(found.group(1).split(), 1)} if found else {}


def _filled_in(wrong: dict[str, str], name: str) -> str:
    """With the places of its arguments."""
    places = arguments(name)
    return re.sub(r"\{(\w+)\}", lambda found: str(places[found[1]]), wrong.get(name, ""))


def break_scripts(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]) -> None:
    """Until the end of the test they are wrong."""
    for script in protocol.SCRIPTS:
        before = wrong[EVERY] if EVERY in wrong else _filled_in(wrong, script.name)
        if before:
            text = f"{before}\n{script.text}"
            sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            monkeypatch.setattr(script, "head", script.head.replace(script.sha.encode(), sha.encode()))
            monkeypatch.setattr(script, "text", text)
            monkeypatch.setattr(script, "sha", sha)
            monkeypatch.setitem(protocol._by_sha, sha, script)
