"""Log records, with the standard library's ``logging``. A record of a lease carries kind, id_hash, owner_prefix, fence
and ttl_ms: never an owner token or a password, and a full id only with ``connect(show_ids=True)``. Acquire, renew and
release at DEBUG; the first use of a store at INFO; loss at WARNING.

``logging`` is imported only for a warning, or when the program uses it anyway: a short command must start fast.
"""

from __future__ import annotations

import sys

from leasehold._core.light_typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasehold._core.ports import Store
    from leasehold.observe.events import Event

DEBUG, INFO, WARNING = 10, 20, 30
_logger: Any = None  # made when it is first needed

# The name of each event in the log, its level, and the fields that it adds. Other events are not logged.
RECORDS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "Acquired": ("lease_acquired", DEBUG, ()),
    "Refused": ("lease_refused", DEBUG, ("outcome",)),
    "Renewed": ("lease_renewed", DEBUG, ()),
    "NotRenewed": ("lease_unsure", WARNING, ("error",)),
    "Downgraded": ("lease_downgraded", DEBUG, ()),
    "Lost": ("lease_lost", WARNING, ("reason",)),
    "Released": ("lease_released", DEBUG, ()),
    "StaleRelease": ("stale_release", DEBUG, ()),
    "ReleaseUnknown": ("release_unknown", WARNING, ()),
    "FencedOff": ("fenced_off", WARNING, ("downstream", "seen")),
    "Unguarded": ("lease_unguarded", WARNING, ()),
    "LimitDiffers": ("limit_differs", WARNING, ("asked", "found")),
    "AntiPattern": ("anti_pattern", WARNING, ("pattern",)),
}
ADVICE = {
    "limit_differs": "give every program the same limit=, or store one for all of them with resize()",
}
INTENDED = ("closed", "resigned")  # losses that the program wanted
FIELDS = ("kind", "id_hash", "owner_prefix", "fence", "ttl_ms")


def enabled(level: int) -> bool:
    """Whether a record of this level would be written."""
    return (_logger is not None or _has_logger(level)) and bool(_logger.isEnabledFor(level))


def _has_logger(level: int) -> bool:
    global _logger
    if level < WARNING and "logging" not in sys.modules:
        return False
    import logging

    _logger = logging.getLogger("leasehold.lease")
    return True


def record(event: Event) -> None:
    """Write one record about one lease. An error in a log handler must not affect the lease."""
    known = RECORDS.get(type(event).__name__)
    if known is None:
        return
    name, level, more = known
    if _is_routine(event):
        level = DEBUG
    if not enabled(level) or getattr(event, "outcome", "") == "not_owner":  # the loss has a record of its own
        return
    fields = {field: getattr(event.lease, field) for field in FIELDS}  # type: ignore[union-attr]  # RECORDS have one
    if event.lease.resource:  # type: ignore[union-attr]  # as above; empty unless ids are shown
        fields["resource"] = event.lease.resource  # type: ignore[union-attr]  # as above
    fields.update((field, getattr(event, field)) for field in more)
    text = " ".join(f"{key}={value}" for key, value in fields.items())
    advice = ADVICE.get(name) or getattr(event, "advice", "")
    if advice:
        text = f"{text}: {advice}"
    try:
        _logger.log(level, "%s %s", name, text, extra={"event": name, **fields})
    except Exception:  # the lease matters more than its record
        return


def _is_routine(event: Event) -> bool:
    """A loss that the program asked for, or what was logged already: thousands of leases, each tried again every second
    while the store is away, must not fill the log, and an unguarded lease has a record of its own."""
    again = getattr(event, "again", False) or getattr(event, "pattern", "") == "unguarded"
    return getattr(event, "reason", "") in INTENDED or bool(again)


def connecting(store: Store, namespace: str) -> None:
    """One record when a coordinator uses its store for the first time: where that is. Never a login."""
    if "logging" not in sys.modules:
        return
    import logging

    logger = logging.getLogger("leasehold.runtime")
    if not logger.isEnabledFor(INFO):
        return
    text = f"{store.url}, namespace {namespace}" if namespace else store.url
    fields = {"event": "store_connecting", "store": store.name, "url": store.url, "namespace": namespace}
    try:
        logger.info("connecting to %s", text, extra=fields)
    except Exception:
        return


def warn(message: str, *args: Any, error: BaseException | None = None) -> None:
    """One record about Leasehold's own threads and connections."""
    import logging

    try:
        logging.getLogger("leasehold.runtime").warning(message, *args, exc_info=error)
    except Exception:
        return


def debug(message: str, *args: Any) -> None:
    """The same at DEBUG; nothing where the program does not use ``logging``."""
    if "logging" in sys.modules:
        import logging

        logging.getLogger("leasehold.runtime").debug(message, *args)
