"""A URL as parameters of libpq, and one sentence about what is wrong with it.

libpq finds most mistakes only when it connects, and some of its messages show a part of the URL. Ours never show what
may be a part of a password.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

import psycopg.conninfo
from psycopg import pq

from leasehold._core.light_typing import Any
from leasehold.errors import InvalidRequest

NUMBERS = ("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count")
CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("read-write", "primary", "any"),  # a standby takes no writes
}
NOT_ENCODED = "percent-encode the special characters of the user and the password: @ is %40, / is %2F, ? is %3F"
ALIAS = "ssl"  # of sslmode=require, for URLs of Java
NEVER = ("replication",)  # such a session executes no statements with values


def options(query: str) -> list[tuple[str, str]]:
    """What follows ``?``. Raises InvalidRequest."""
    _check_text(query)
    parts = [part.partition("=") for part in query.split("&")] if query else []
    found = [(name, unquote(value)) for name, _, value in parts]
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"the URL has the option {_shown(twice)} twice")
    return found


def parameters(url: str, ours: Iterable[str]) -> dict[str, Any]:
    """The parameters of libpq. ``ours``: the names of options that are not its own. Raises InvalidRequest."""
    _check_text(url)
    place, _, query = url.partition("?")
    _, _, rest = place.partition("://")
    if "@" in rest.partition("/")[2] or rest.count("@") > 1:
        raise InvalidRequest(NOT_ENCODED)
    _check_names(options(query), ours, "@" in rest)
    try:
        found = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        line = str(error).split('"')[0].strip().rstrip(":")  # what follows may be a part of a password
        raise InvalidRequest(f"that is no URL of PostgreSQL ({line}): write postgresql://user@host/database") from None
    _check_values(found)
    return found


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the URL has characters that cannot be sent as UTF-8") from None
    if "\0" in text:
        raise InvalidRequest("the URL has a NUL character")


def _check_names(given: Sequence[tuple[str, str]], ours: Iterable[str], has_user: bool) -> None:
    known = [one.keyword.decode() for one in pq.Conninfo.get_defaults()]
    for name, _ in given:
        if (name in known and name not in NEVER) or name == ALIAS:
            continue
        if not has_user and any("@" in name + value for name, value in given):  # it begins in the middle of a password
            raise InvalidRequest(NOT_ENCODED)
        like = difflib.get_close_matches(name, [*ours, *known], 1)
        hint = f": did you mean {like[0]}?" if like and like[0] != name else ""
        raise InvalidRequest(f"a URL of PostgreSQL has no option {_shown(name)}{hint}")


def _check_values(found: Mapping[str, Any]) -> None:
    hosts = str(found.get("host") or found.get("hostaddr") or "").split(",")
    ports = str(found.get("port") or "").split(",")
    if any(port and not (_is_number(port) and 0 < int(port) < 65536) for port in ports):
        raise InvalidRequest(f"a port is a number from 1 to 65535; if that is a part of a password, {NOT_ENCODED}")
    if len(ports) not in (1, len(hosts)):
        raise InvalidRequest(
            f"the URL has {len(ports)} ports for {len(hosts)} hosts: give one for each, or one for all"
        )
    for name in NUMBERS:
        if name in found and not _is_number(str(found[name]).removeprefix("-")):
            raise InvalidRequest(f"{name}= is a number, not {_shown(str(found[name]))}")
    for name, choices in CHOICES.items():
        if found.get(name, choices[0]) not in choices:
            raise InvalidRequest(f"{name}= is one of {', '.join(choices)}, not {_shown(str(found[name]))}")
    encoding = str(found.get("client_encoding", "UTF8"))
    if encoding.upper().replace("-", "") not in ("UTF8", "UNICODE"):
        raise InvalidRequest(f"client_encoding= is UTF8, not {_shown(encoding)}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _shown(text: str) -> str:
    return repr(text[:40])
