"""Error replies of Redis and failures of the network, as errors of ours.

Needs no hiredis: guards and result stores over a client use it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable

# By the first word of an error reply: those that are certain to have changed nothing.
NO: dict[str, str] = {
    "ASK": "is a node of a Cluster: connect with redis+cluster://host",
    "BUSY": "is busy with a script that runs for too long",
    "CLUSTERDOWN": "is a node of a Cluster that is down",
    "CROSSSLOT": "is a node of a Cluster: connect with redis+cluster://host",
    "LOADING": "is still loading its data",
    "MASTERDOWN": "is a replica whose master is down",
    "MISCONF": "refuses writes because it cannot save its data to disk",
    "MOVED": "is a node of a Cluster: connect with redis+cluster://host",
    "NOAUTH": "wants a password: redis://user:password@host",
    "NOPERM": "does not allow this user what this call needs; `leasehold doctor` prints the ACL line",
    "NOREPLICAS": "refuses writes because it has too few replicas",
    "NOSCRIPT": "forgot a script that it was just sent",
    "OOM": "has no memory left (maxmemory with noeviction): nothing can be locked until some is freed",
    "READONLY": "is a read-only replica: write to its master",
    "TRYAGAIN": "is a node of a Cluster that moves this slot",
    "WRONGTYPE": "has something that is no lease at the keys lock:v1:{...} of this resource",
    "WRONGPASS": "does not accept this user and password",
}


# NOPERM for a key and not for a command, where no other text replaces it.
NO_KEY = (
    "does not allow this user one of these keys: leases need ~lock:v1:*, and a search for leaks also the right to read "
    "what it searches, such as %R~lock:*; `leasehold doctor` prints the ACL lines"
)
DEMOTED = ("READONLY", "MASTERDOWN", "NOREPLICAS")


class TooManyConnections(StoreUnavailable):
    """As many connections are open as ``max_connections`` allows: nothing was sent."""


def refusal(server: str, reply: BaseException, no: Mapping[str, str] = NO) -> LeaseholdError:
    """An error reply as an error of ours. One that is not known to have changed nothing is OutcomeUnknown. ``server``
    names the server ("Redis at host:port"), and ``no`` may replace the texts of ``NO``."""
    text = str(reply)
    word = text.split(" ", 1)[0].rstrip(":")
    if word == "UNREADABLE":
        return StoreUnavailable(f"{server} {unreadable(text)}")
    why = no.get(word) or next((no[known] for known in no if f"-{known} " in text or f" {known} " in text), None)
    if why is None and ("ACL failure in script" in text or "executing the script can't" in text):
        why = no["NOPERM"]
    if why is not None and why == NO["NOPERM"] and _about_a_key(text):
        why = NO_KEY
    if why is None and "max number of clients" in text:
        why = "has no connection left (maxclients)"
    if why is None:
        return OutcomeUnknown(f"{server} answered with an error: {text[:200]}")
    return StoreUnavailable(f"{server} {why}")


def _about_a_key(text: str) -> bool:
    """Redis 7: "No permissions to access a key"; before: "can't access at least one of the keys"."""
    return "access a key" in text or "of the keys" in text


def demoted(reply: BaseException) -> bool:
    """True for the error reply of a server that has become a replica, or that is cut off from its replicas: another one
    may be the primary by now, and only a new connection finds it."""
    text = str(reply)
    return text.startswith(DEMOTED) or any(f"-{word} " in text for word in DEMOTED)


def unreadable(text: str) -> str:
    """What a script found in place of a record: which key, and what is wrong with it. Without the ids of the
    resource."""
    _, part, why = text.split(" ", 2)
    return (
        f"has something that is no lease at the key lock:v1:{{...}}:{part} of this resource: it {why}. Nothing was "
        f"granted. `leasehold inspect` shows it; delete that key when no one uses it"
    )


def unreachable(server: str, error: BaseException) -> StoreUnavailable:
    """Nothing was sent."""
    return StoreUnavailable(f"{server} cannot be reached: {reason(error)}")


def unanswered(server: str, error: BaseException, resource: str | None = None) -> OutcomeUnknown:
    """It was sent, and may or may not have been done."""
    return OutcomeUnknown(f"{server} did not answer: {reason(error)}", resource=resource)


def replaced(place: object) -> OutcomeUnknown:
    """It replied, and the reply does not count."""
    return OutcomeUnknown(f"Redis at {place} answered late, and is not certain to be the primary any more")


def reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "it took too long"
    text = str(error).partition(" : <")[0]  # redis-py shows the client of a Sentinel behind it
    return text[:200] or type(error).__name__
