"""The resource that a request is about: what ``resource=`` of the middleware may be.

    None                                       what the header X-Fencing-Resource says
    "settings"                                 the same for every request
    {"/reports/{id:int}": "report:{id}"}       by the path: the first pattern that fits; no other path is guarded
    a function of the scope or environ         what it returns; None: this request is not guarded

Names are text forms, like ``lock.resource``. ``{id}`` is one segment of the path; ``{id:int}`` and ``{id:uuid}`` are
parsed, so that ``042`` and ``42`` are one report. They are parsed as generously as the most generous router does: a
path that a router takes for report 42 and this module does not would reach its handler unguarded.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from leasehold._core.names import part
from leasehold.errors import InvalidRequest
from leasehold.guards.fence import check_resource
from leasehold.guards.http.problems import RequestRefused, malformed

Resource = str | Mapping[str, str] | Callable[[Any], str | None] | None
ResourceOf = Callable[[Mapping[str, Any], str], str | None]  # scope or environ, and the path

_FIELD = re.compile(r"\{([^{}:]*)(:[^{}]*)?\}")
MOST_DIGITS = 4000  # Python reads no more than 4300


def _whole(text: str) -> int:
    """A whole number. FastAPI takes ``+42``, ``4_2``, ``0__42``, ``42.0`` and spaces around them for 42, and ``0-42``
    for -42; Flask takes the digits of every script."""
    if len(text) > MOST_DIGITS:
        raise InvalidRequest("this is no number that can be an id")
    number, _, zeros = text.strip().replace("_", "").partition(".")
    if not number.strip("+") or zeros.strip("0"):
        raise ValueError("this is no whole number")
    return int(number.lstrip("+").lstrip("0") or "0")


# How a segment is parsed. ValueError: the path does not match. UUID() takes braces and urn:uuid: like FastAPI.
_KINDS: dict[str, Callable[[str], object]] = {"": str, ":int": _whole, ":uuid": UUID}


def resource_of(resource: object) -> ResourceOf | None:
    """The function that names the resource of a request; None: its header does. Raises InvalidRequest."""
    if resource is None:
        return None
    if isinstance(resource, str):
        return _always(resource)
    if isinstance(resource, Mapping):
        return _by_path([_Rule(pattern, text) for pattern, text in resource.items()])
    if not callable(resource) or inspect.iscoroutinefunction(resource):
        raise InvalidRequest(
            "resource is a name, a mapping such as {'/reports/{id}': 'report:{id}'}, or a function that is not async"
        )
    return _by_function(resource)


def _always(resource: str) -> ResourceOf:
    if _FIELD.search(resource):
        raise InvalidRequest("the fields of a resource come from a path: write {'/reports/{id}': 'report:{id}'}")
    fixed = check_resource(resource)
    return lambda request, path: fixed


def _by_function(function: Callable[..., object]) -> ResourceOf:
    def named(request: Mapping[str, Any], path: str) -> str | None:
        resource = function(request)
        return None if resource is None else check_resource(resource)

    return named


def _by_path(rules: list[_Rule]) -> ResourceOf:
    if not rules:
        raise InvalidRequest("resource={} guards nothing: write {'/reports/{id}': 'report:{id}'}")

    def named(request: Mapping[str, Any], path: str) -> str | None:
        return next((name for rule in rules if (name := rule.name(path)) is not None), None)

    return named


class _Rule:
    """A path pattern with fields, and the resource name that is made of them."""

    __slots__ = ("_path", "_readers", "_text")

    def __init__(self, pattern: object, text: object) -> None:
        if not isinstance(pattern, str) or not pattern.startswith("/"):
            raise InvalidRequest("a pattern of paths begins with a slash, such as '/reports/{id}'")
        fields = _FIELD.findall(pattern)
        self._readers = {name: _KINDS[kind] for name, kind in fields if name.isidentifier() and kind in _KINDS}
        if len(self._readers) < len(fields) or set("{}") & set(_FIELD.sub("", pattern)):
            raise InvalidRequest(f"{pattern!r}: a field is {{name}}, {{name:int}} or {{name:uuid}}, each with its name")
        self._text = self._checked(text, pattern)
        self._path = re.compile(_expression(pattern))

    def _checked(self, text: object, pattern: str) -> str:
        if not isinstance(text, str):
            raise InvalidRequest(f"a resource is text such as 'report-export:{{id}}', not {type(text).__name__}")
        unknown = [name for name, kind in _FIELD.findall(text) if name not in self._readers or kind]
        if unknown or set("{}") & set(_FIELD.sub("", text)):
            raise InvalidRequest(f"{text!r}: a field is {{name}}, and {pattern!r} has one of that name")
        check_resource(text)
        return text

    def name(self, path: str) -> str | None:
        """The resource; None when the path does not match."""
        found = self._path.fullmatch(path)
        if found is None:
            return None
        try:
            values = {name: part(read(found[name]), "id") for name, read in self._readers.items()}
            return check_resource(_FIELD.sub(lambda field: values[field[1]], self._text))
        except InvalidRequest as error:
            raise RequestRefused(malformed("The path names no resource that can have a lease.")) from error
        except ValueError:  # not a number, not a UUID
            return None


def _expression(pattern: str) -> str:
    """As a regular expression. Some routers ignore a slash at the end, so it is guarded either way."""
    parts, at = [], 0
    for field in _FIELD.finditer(pattern):
        parts += [re.escape(pattern[at : field.start()]), f"(?P<{field[1]}>[^/]+)"]
        at = field.end()
    return "".join([*parts, re.escape(pattern[at:].rstrip("/")), "/?"])
