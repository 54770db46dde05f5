"""What somebody's object is: a client, or one of the things beside it that only look like one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from leasehold._core.light_typing import Any
from leasehold.errors import InvalidRequest, Unsupported

PACKAGES = ("redis", "valkey")


def family(cls: Any) -> str:
    """The package that a class comes from, if it is one of those that we know."""
    package = str(getattr(cls, "__module__", "")).partition(".")[0]
    return package if package in PACKAGES else ""


def behind(client: Any) -> str:
    """Where the server of a client is, as far as that can be said without its address: a URL may hold a password."""
    kind = type(client)
    service = getattr(getattr(client, "connection_pool", None), "service_name", None)  # of a Sentinel
    shown = f" (Sentinel service {service})" if isinstance(service, str) else ""
    return f"behind the client {kind.__module__.partition('.')[0]}.{kind.__qualname__}{shown}"


def check_client(client: Any, taker: str, refused: Mapping[str, str]) -> None:
    """It has commands, and is none of those classes. Sends nothing."""
    for cls in type(client).__mro__:
        if cls.__name__ in refused and family(cls):
            raise Unsupported(f"{taker} cannot use a {cls.__name__}: {refused[cls.__name__]}")
    if inspect.isclass(client) or not callable(getattr(client, "execute_command", None)):
        raise InvalidRequest(f"{taker} takes a client such as redis.Redis(), not {type(client).__name__}")


def undecoded(client: Any) -> dict[str, Any]:
    """What to call the commands of a client with, so that one that was told to decode replies (``decode_responses``)
    hands them over as bytes: what strangers wrote need not be text, and would be no reply at all then (trap 52)."""
    settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", None)
    decodes = isinstance(settings, dict) and settings.get("decode_responses")
    if not decodes or not any(family(cls) for cls in type(client).__mro__):
        return {}
    takes = inspect.signature(client.execute_command).parameters.values()
    return {"NEVER_DECODE": True} if any(one.kind is one.VAR_KEYWORD for one in takes) else {}


def retries(client: Any) -> bool:
    """Does it repeat commands by itself? Unless it says that it does not, it may."""
    settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", None)
    if not isinstance(settings, dict) or "retry" not in settings:
        return True
    retry = settings["retry"]
    return retry is not None and getattr(retry, "_retries", 1) != 0
