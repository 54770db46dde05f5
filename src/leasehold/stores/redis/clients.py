"""The user's own client, of redis-py or valkey-py: whether it is one, what it can do, and what its errors mean.

Needs no hiredis: guards and result stores over a client use it too.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Mapping

from leasehold._core.light_typing import Any
from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable, Unsupported
from leasehold.stores.redis.failures import NO, refusal, unanswered, unreachable

PACKAGES = ("redis", "valkey")


def family(cls: Any) -> str:
    """The package that a class comes from, if it is one that we know."""
    package = str(getattr(cls, "__module__", "")).partition(".")[0]
    return package if package in PACKAGES else ""


def description(client: Any) -> str:
    """The client's class in words, for messages. Not the address of its server: a URL may hold a password."""
    kind = type(client)
    service = getattr(getattr(client, "connection_pool", None), "service_name", None)  # of a Sentinel
    shown = f" (Sentinel service {service})" if isinstance(service, str) else ""
    return f"behind the client {kind.__module__.partition('.')[0]}.{kind.__qualname__}{shown}"


def check(client: Any, caller: str, refused: Mapping[str, str]) -> None:
    """Raise unless it has commands, and is of none of the ``refused`` classes. Sends nothing."""
    for cls in type(client).__mro__:
        if cls.__name__ in refused and family(cls):
            raise Unsupported(f"{caller} cannot use a {cls.__name__}: {refused[cls.__name__]}")
    if inspect.isclass(client) or not callable(getattr(client, "execute_command", None)):
        raise InvalidRequest(f"{caller} takes a client such as redis.Redis(), not {type(client).__name__}")


def undecoded(client: Any) -> dict[str, Any]:
    """Options for the commands of a client, so that one with ``decode_responses`` returns replies as bytes all the
    same: what other programs wrote need not be text, and decoding it would fail (trap 52)."""
    settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", None)
    decodes = isinstance(settings, dict) and settings.get("decode_responses")
    if not decodes or not any(family(cls) for cls in type(client).__mro__):
        return {}
    takes = inspect.signature(client.execute_command).parameters.values()
    return {"NEVER_DECODE": True} if any(one.kind is one.VAR_KEYWORD for one in takes) else {}


def retries(client: Any) -> bool:
    """Whether it may repeat commands by itself. True unless its settings say that it does not."""
    settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", None)
    if not isinstance(settings, dict) or "retry" not in settings:
        return True
    retry = settings["retry"]
    return retry is not None and getattr(retry, "_retries", 1) != 0


# ---------------------------------------------------------------- its errors

BY_CLASS = {
    "AskError": "ASK",
    "AuthenticationError": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}


def unknown_script(error: BaseException) -> bool:
    return first_word(error) == "NOSCRIPT"


def explained(server: str, error: BaseException, retries: bool, no: Mapping[str, str] = NO) -> LeaseholdError:
    """An error that a client raised, as one of ours. redis-py and valkey-py give many error replies a class and remove
    the first word. Of a client that ``retries`` only the last attempt is seen: when that one was not sent, an earlier
    one may have been."""
    word = first_word(error)
    if word:
        return StoreUnavailable(f"{server} {no[word]}")
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"ResponseError", "ReplyError"} or "max number of clients" in str(error):
        return refusal(server, error, no)
    if str(error).startswith(DEMOTED) and not retries:
        return StoreUnavailable(f"{server} {no['READONLY']}")
    before_sending = names & {"MaxConnectionsError", "MasterNotFoundError"} or isinstance(_root(error), NEVER_SENT)
    if never_sent(error) or (before_sending and not retries):
        return unreachable(server, error)
    return unanswered(server, error)


def never_sent(error: BaseException) -> bool:
    """True when the client was still getting a connection. Clients of redis-py and valkey-py do that once, before they
    send a command for the first time, and repeat it on that connection. The client of a Cluster gets one for each
    attempt, and the frames of other programs may be a loop around it all."""
    trace = error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        if not module.startswith(LIBRARIES) or "cluster" in module:
            return False
        if code.co_name == "get_connection":
            return True
        trace = trace.tb_next
    return False


def first_word(error: BaseException) -> str:
    """The first word of the error reply if it is one of ``NO``, or an empty text."""
    for cls in type(error).__mro__:
        if cls.__name__ in BY_CLASS:
            return BY_CLASS[cls.__name__]
    first = str(error).split(" ", 1)[0]
    return first if first in NO else ""


DEMOTED = "The previous master is now a slave"  # what the clients of Sentinels make of READONLY
LIBRARIES = ("leasehold.", "redis.", "valkey.")
NEVER_SENT = (ConnectionRefusedError, FileNotFoundError, socket.gaierror)


def _root(error: BaseException) -> BaseException:
    seen = {id(error)}  # an error that is raised again may have become its own cause
    while (deeper := error.__cause__ or error.__context__) is not None and id(deeper) not in seen:
        error = deeper
        seen.add(id(error))
    return error
