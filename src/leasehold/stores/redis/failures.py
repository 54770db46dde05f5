"""What Redis and the network answer when they do not answer, in words and as one of our errors."""

from __future__ import annotations

from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable

# The first word of an error reply that is a definite no: nothing was changed.
NO: dict[str, str] = {
    "ASK": "is a node of a Cluster: use redis+cluster://",
    "BUSY": "is busy with a script that runs for too long",
    "CLUSTERDOWN": "is a node of a Cluster that is down",
    "CROSSSLOT": "is a node of a Cluster: use redis+cluster://",
    "LOADING": "is still loading its data",
    "MASTERDOWN": "is a replica whose master is down",
    "MISCONF": "refuses writes because it cannot save its data to disk",
    "MOVED": "is a node of a Cluster: use redis+cluster://",
    "NOAUTH": "wants a password: redis://user:password@host",
    "NOPERM": "does not allow this user what a lease needs; docs/redis.md has the ACL line",
    "NOREPLICAS": "refuses writes because it has too few replicas",
    "NOSCRIPT": "forgot a script that it was just sent",
    "OOM": "has no memory left (maxmemory with noeviction): nothing can be locked until some is freed",
    "READONLY": "is a read-only replica: write to its master",
    "TRYAGAIN": "is a node of a Cluster that moves this slot",
    "WRONGPASS": "does not accept this user and password",
}


def refusal(where: object, reply: BaseException) -> LeaseholdError:
    """An error reply as an error of ours. What is not known to have changed nothing may have changed something."""
    text = str(reply)
    word = text.split(" ", 1)[0].rstrip(":")
    why = NO.get(word) or next((NO[known] for known in NO if f"-{known} " in text or f" {known} " in text), None)
    if why is None and "max number of clients" in text:
        why = "has no connection left (maxclients)"
    if why is None:
        return OutcomeUnknown(f"Redis at {where} answered with an error: {text[:200]}")
    return StoreUnavailable(f"Redis at {where} {why}")


def unreachable(where: object, error: BaseException) -> StoreUnavailable:
    """Nothing was sent."""
    return StoreUnavailable(f"Redis at {where} cannot be reached: {reason(error)}")


def unanswered(where: object, error: BaseException) -> OutcomeUnknown:
    """It was sent, and nobody knows what became of it."""
    return OutcomeUnknown(f"Redis at {where} did not answer: {reason(error)}")


def reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "it took too long"
    return str(error) or type(error).__name__
