"""Log records of leases. A record carries kind, id_hash, owner_prefix, fence and ttl_ms: never a full id, an
owner token or a password. Acquire, renew and release at DEBUG; loss at WARNING.

``logging`` is imported only when there is something that nobody may miss, or when the program uses it anyway.
"""

from __future__ import annotations

import sys

from leasehold.core.holding import Holding
from leasehold.core.typed import Any
from leasehold.core.types import public_owner

DEBUG, WARNING = 10, 30
_logger: Any = None  # made when it is first needed


def context(holding: Holding) -> dict[str, Any]:
    """The fields that may be shown of a lease."""
    return {
        "kind": holding.name.kind,
        "id_hash": holding.name.id_hash,
        "owner_prefix": public_owner(holding.owner),
        "fence": holding.fence,
        "ttl_ms": holding.ttl_ms,
    }


def wanted(level: int) -> bool:
    """Does anybody want to know?"""
    return (_logger is not None or _found(level)) and bool(_logger.isEnabledFor(level))


def _found(level: int) -> bool:
    global _logger
    if level < WARNING and "logging" not in sys.modules:
        return False
    import logging

    _logger = logging.getLogger("leasehold.lease")
    return True


def say(level: int, event: str, holding: Holding, **more: Any) -> None:
    """One record about one lease. An error in somebody's log handler harms nobody."""
    if (_logger is None and not _found(level)) or not _logger.isEnabledFor(level):
        return
    fields = {**context(holding), **more}
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    try:
        _logger.log(level, "%s %s", event, text, extra={"event": event, **fields})
    except Exception:  # the lease matters more than its record
        return


def warn(message: str, *args: Any, error: BaseException | None = None) -> None:
    """One record about the machinery itself."""
    import logging

    try:
        logging.getLogger("leasehold.runtime").warning(message, *args, exc_info=error)
    except Exception:
        return


def debug(message: str, *args: Any) -> None:
    """One record for whoever looks closely; nothing where nobody uses ``logging``."""
    if "logging" in sys.modules:
        import logging

        logging.getLogger("leasehold.runtime").debug(message, *args)
