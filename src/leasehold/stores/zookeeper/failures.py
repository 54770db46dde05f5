"""Errors of the server, of kazoo and of the network, as errors of ours.

An error that the server answers with is a refusal: nothing was done. A connection that breaks after the request was
sent leaves the outcome unknown, and so does a session that ends meanwhile.
"""

from __future__ import annotations

from kazoo import exceptions as kazoo

from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.stores.zookeeper.calls import NotSent, Unanswered

# The connection or the session ended: whether the request was executed is not known, unless it was not sent.
BROKEN = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,  # and ConnectionClosedError
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
    kazoo.RequestTimeoutError,
    kazoo.AuthFailedError,
    NotSent,
    Unanswered,
)
# A condition of the transaction does not hold.
CONDITIONS = (kazoo.BadVersionError, kazoo.NoNodeError, kazoo.NodeExistsError, kazoo.NotEmptyError)
TEXTS: dict[type[Exception], str] = {
    kazoo.SessionClosedRequireSaslError: "requires a login by SASL: add sasl=digest or sasl=gssapi to the URL",
    kazoo.NoAuthError: "does not allow this login what a lease needs; give the user and the password with which the "
    "tree was made, or let an administrator set the ACL of the chroot",
    kazoo.InvalidACLError: "refuses the ACL: acl=creator needs a login, so give a user and a password",
    kazoo.NotReadOnlyCallError: "is read-only, because it has lost its ensemble; name all members in the URL",
    kazoo.QuotaExceededError: "has a quota on this tree, which is used up: raise it with setquota",
    kazoo.ThrottledOpError: "is overloaded and has refused the request: try again later",
    kazoo.UnimplementedError: "is too old: ZooKeeper 3.5 or newer is needed",
    kazoo.EphemeralOnLocalSessionError: "has local sessions without upgrading: set localSessionsUpgradingEnabled=true",
    kazoo.MarshallingError: "could not read the request: it is larger than jute.maxbuffer, or the server is too old",
}


def refusal(server: str, error: Exception) -> LeaseholdError:
    """Nothing was changed."""
    text = TEXTS.get(type(error))
    if text is None:
        return StoreUnavailable(f"{server} refused: {_line(error)}")
    return StoreUnavailable(f"{server} {text}")


def unknown(server: str, error: BaseException) -> LeaseholdError:
    """It was sent, and may or may not have been done."""
    if isinstance(error, Unanswered):
        return OutcomeUnknown(f"{server} did not answer in time")
    return OutcomeUnknown(f"the connection to {server} broke before the answer came ({_line(error)})")


def login_refused(server: str) -> StoreUnavailable:
    """Nothing was done."""
    return StoreUnavailable(f"{server} does not accept this login: check the user and the password, or the ticket")


def unreachable(server: str, trouble: str) -> StoreUnavailable:
    """Nothing was done."""
    return StoreUnavailable(f"{server} cannot be reached: {trouble or 'no member answers in time'}")


def foreign(server: str, chroot: str) -> StoreUnavailable:
    """The tree is none of ours, or of another version."""
    return StoreUnavailable(
        f"{server} has a node {chroot} that is not of Leasehold, or of another version: choose another chroot"
    )


def too_large(server: str, size: int) -> StoreUnavailable:
    return StoreUnavailable(
        f"a change of {size} bytes is too large for {server}, which takes about 1 MB: claim fewer resources at once"
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__.removesuffix("Error")
