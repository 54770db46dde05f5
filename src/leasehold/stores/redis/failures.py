"""What Redis and the network answer when they do not answer, in words and as one of our errors."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable

# The first word of an error reply that is a definite no: nothing was changed.
NO: dict[str, str] = {
    "ASK": "is a node of a Cluster, for which this version has no store",
    "BUSY": "is busy with a script that runs for too long",
    "CLUSTERDOWN": "is a node of a Cluster that is down",
    "CROSSSLOT": "is a node of a Cluster, for which this version has no store",
    "LOADING": "is still loading its data",
    "MASTERDOWN": "is a replica whose master is down",
    "MISCONF": "refuses writes because it cannot save its data to disk",
    "MOVED": "is a node of a Cluster, for which this version has no store",
    "NOAUTH": "wants a password: redis://user:password@host",
    "NOPERM": "does not allow this user what a lease needs; docs/redis.md has the ACL line",
    "NOREPLICAS": "refuses writes because it has too few replicas",
    "NOSCRIPT": "forgot a script that it was just sent",
    "OOM": "has no memory left (maxmemory with noeviction): nothing can be locked until some is freed",
    "READONLY": "is a read-only replica: write to its master",
    "TRYAGAIN": "is a node of a Cluster that moves this slot",
    "WRONGTYPE": "has something that is no lease at the keys lock:v1:{...} of this resource",
    "WRONGPASS": "does not accept this user and password",
}


def refusal(server: str, reply: BaseException, no: Mapping[str, str] = NO) -> LeaseholdError:
    """An error reply as an error of ours. What is not known to have changed nothing may have changed something.
    ``server`` names who answered ("Redis at host:port"), ``no`` says in other words what each of ``NO`` means."""
    text = str(reply)
    word = text.split(" ", 1)[0].rstrip(":")
    if word == "UNREADABLE":
        return StoreUnavailable(f"{server} {unreadable(text)}")
    why = no.get(word) or next((no[known] for known in no if f"-{known} " in text or f" {known} " in text), None)
    if why is None and ("ACL failure in script" in text or "executing the script can't" in text):
        why = no["NOPERM"]
    if why is None and "max number of clients" in text:
        why = "has no connection left (maxclients)"
    if why is None:
        return OutcomeUnknown(f"{server} answered with an error: {text[:200]}")
    return StoreUnavailable(f"{server} {why}")


def unreadable(text: str) -> str:
    """What a script found in place of a record: which key, and why it is none. Without the ids of the resource."""
    _, part, why = text.split(" ", 2)
    return (
        f"has something that is no lease at the key lock:v1:{{...}}:{part} of this resource: it {why}. Nothing was "
        f"granted. `leasehold inspect` shows it; delete that key when nobody works by it"
    )


def unreachable(server: str, error: BaseException) -> StoreUnavailable:
    """Nothing was sent."""
    return StoreUnavailable(f"{server} cannot be reached: {reason(error)}")


def unanswered(server: str, error: BaseException, resource: str | None = None) -> OutcomeUnknown:
    """It was sent, and nobody knows what became of it."""
    return OutcomeUnknown(f"{server} did not answer: {reason(error)}", resource=resource)


def reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "it took too long"
    text = str(error).partition(" : <")[0]  # redis-py shows the client of a Sentinel behind it
    return text[:200] or type(error).__name__


# ---------------------------------------------------------------- errors of somebody's client

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


def of_client(server: str, error: BaseException, retries: bool, no: Mapping[str, str] = NO) -> LeaseholdError:
    """redis-py and valkey-py give many errors a class and take the first word away. Of a client that ``retries`` only
    the last attempt is seen: that nothing was sent then says nothing about the first."""
    word = first_word(error)
    if word:
        return StoreUnavailable(f"{server} {no[word]}")
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"ResponseError", "ReplyError"} or "max number of clients" in str(error):
        return refusal(server, error, no)
    before_sending = names & {"MaxConnectionsError", "MasterNotFoundError"} or isinstance(_root(error), NEVER_SENT)
    if never_sent(error) or (before_sending and not retries):
        return unreachable(server, error)
    return unanswered(server, error)


def never_sent(error: BaseException) -> bool:
    """Was the client still getting a connection? Those of redis-py and valkey-py do so once, before they send a command
    for the first time, and repeat it on that one. That of a Cluster gets one for each attempt, and the frames of others
    may be a loop around the whole."""
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
    """One of ``NO``, or nothing."""
    for cls in type(error).__mro__:
        if cls.__name__ in BY_CLASS:
            return BY_CLASS[cls.__name__]
    first = str(error).split(" ", 1)[0]
    return first if first in NO else ""


LIBRARIES = ("leasehold.", "redis.", "valkey.")
NEVER_SENT = (ConnectionRefusedError, FileNotFoundError, socket.gaierror)


def _root(error: BaseException) -> BaseException:
    seen = {id(error)}  # one that is raised again may have become its own cause
    while (deeper := error.__cause__ or error.__context__) is not None and id(deeper) not in seen:
        error = deeper
        seen.add(id(error))
    return error
