"""The coordinator of a command: opened from what was typed, its lease held by a thread, its errors as exit codes."""

from __future__ import annotations

import os
import threading

from leasehold._core.durations import is_long, ttl_ms
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import resource_names
from leasehold.cli.output import CommandEnded, ExitCode
from leasehold.coordinator import Leasehold, connect
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leasehold.cli.arguments import RunRequest
    from leasehold.cli.output import Output
    from leasehold.cli.service_arguments import ElectRequest
    from leasehold.observe.events import Event
    from leasehold.primitives.campaign import Campaign
    from leasehold.primitives.election import Election
    from leasehold.primitives.lease import Lease
    from leasehold.primitives.lock import Lock

# ---------------------------------------------------------------- names
#
# NAME of ``leasehold run``: ``kind``, ``kind:id:id`` or, as ``leasehold ls`` shows it, ``namespace/kind:id``.
#
# It is the text form: special characters inside a part are percent-encoded, so that what ``ls`` prints can be typed.


def parse_name(text: str, namespace: str | None = None) -> tuple[str | None, str, list[str]]:
    """Namespace, kind and ids, as ``connect`` and ``lock`` take them. A namespace in the name must be that of
    ``--namespace``, if that is given."""
    resource_names("", text)  # refuses what is no text form
    head, *ids = text.split(":")
    prefix, slash, kind = head.rpartition("/")
    if slash and namespace not in (None, _plain(prefix)):
        raise InvalidRequest(f"the name {text} is not in the namespace {namespace}")
    return _plain(prefix) if slash else namespace, _plain(kind), [_plain(one) for one in ids]


def _plain(part: str) -> str:
    first, *rest = part.split("%")
    return first + "".join([chr(int(one[:2], 16)) + one[2:] for one in rest])


# ---------------------------------------------------------------- coordinators and locks


LONG = "a ttl over 1 h blocks recovery after a crash for that long; it is renewed anyway, so seconds are enough"


def open_hold(
    url: str | None,
    namespace: str | None,
    observers: Iterable[Callable[[Event], object]] = (),
    shared: bool | None = None,
) -> Leasehold:
    """The URL and the namespace, of the user or the environment, are configuration: 78 when they are wrong."""
    log.RECORDS.clear()  # the command itself reports what people should know
    try:
        hold = connect(url, namespace=namespace, observers=observers, shared=shared)
    except (InvalidRequest, Unsupported) as error:
        raise CommandEnded(ExitCode.CONFIG, "failed", str(error)) from error
    except LeaseholdError as error:
        raise failed(error) from error
    return hold


def place_of(hold: Leasehold, url: str | None) -> str:
    """Where a command looks, for people: a store that nobody has named is called so."""
    namespace = f", namespace {hold.namespace}" if hold.namespace else ""
    return f"{hold.store}{'' if named_by(url) else ', the embedded store'}{namespace}"


def named_by(url: str | None) -> str:
    """What names the store: an option, a variable, or nothing."""
    return "--url" if url is not None else "LEASEHOLD_URL" if "LEASEHOLD_URL" in os.environ else ""


def open_lock(request: RunRequest, output: Output) -> tuple[Leasehold, Lock]:
    """What ``leasehold run`` needs; 2 when the request makes no sense."""
    try:
        namespace, kind, ids = parse_name(request.name, request.namespace)
        long = is_long(ttl_ms(request.ttl))
    except InvalidRequest as error:
        raise failed(error) from error
    if long:
        warn_of_long_ttl(output)
    limits = [] if request.limit is None else [_limit_observer(request, output)]
    hold = open_hold(request.url, namespace, [*limits, *request.observers], request.shared_store)
    try:
        return hold, _lock(hold, request, kind, ids)
    except LeaseholdError as error:
        raise failed(error) from error


def _lock(hold: Leasehold, request: RunRequest, kind: str, ids: list[str]) -> Lock:
    ttl, wait, at_least = request.ttl, request.wait, request.at_least
    if request.shared:
        return hold.rwlock(kind, *ids).read(ttl=ttl, wait=wait, at_least=at_least)
    if request.limit is not None:
        return hold.semaphore(kind, *ids, limit=request.limit, ttl=ttl, wait=wait, at_least=at_least)
    return hold.lock(kind, *ids, ttl=ttl, wait=wait, at_least=at_least)


def _limit_observer(request: RunRequest, output: Output) -> Callable[[Event], object]:
    """Reports that others use another limit: one of them was mistyped, and nothing else would show it."""

    def observe(event: Event) -> None:
        if type(event).__name__ == "LimitDiffers" and (request.as_json or not request.skip_ok):
            asked, found = event.asked, event.found  # type: ignore[union-attr]  # known by its name: nothing to import
            output.report(
                "limit",
                f"{request.name}: others use a limit of {found}, this one {asked}: give the same --limit everywhere",
                resource=request.name, asked=asked, found=found,
            )  # fmt: skip

    return observe


def open_election(request: ElectRequest, health: Callable[[], bool] | None) -> tuple[Leasehold, Election]:
    """What ``leasehold elect`` needs; 2 when the request makes no sense."""
    try:
        namespace, kind, ids = parse_name(request.name, request.namespace)
        ttl_ms(request.ttl)
    except InvalidRequest as error:
        raise failed(error) from error
    hold = open_hold(request.url, namespace, request.observers, request.shared_store)
    try:
        checks: dict[str, Any] = {}
        if health is not None:
            checks = {"health_start_period": request.health_start_period, "health_retries": request.health_retries}
        return hold, hold.election(
            kind, *ids, ttl=request.ttl, wait=request.wait, value=request.value, health=health, **checks
        )
    except LeaseholdError as error:
        raise failed(error) from error


def warn_of_long_ttl(output: Output) -> None:
    import warnings

    warnings.simplefilter("ignore", UserWarning)  # the library would warn as well, with a line of our source
    output.report("warning", LONG)


def failed(error: BaseException) -> BaseException:
    """An error of the library as the end of a command. Any other error is a bug, and is returned as it is."""
    if isinstance(error, InvalidRequest):
        return CommandEnded(ExitCode.USAGE, "failed", str(error))
    if isinstance(error, Unsupported):
        return CommandEnded(ExitCode.CONFIG, "failed", str(error))
    if isinstance(error, (StoreUnavailable, OutcomeUnknown)):
        return CommandEnded(ExitCode.UNAVAILABLE, "unavailable", f"the store is unavailable: {error}")
    return error


# ---------------------------------------------------------------- the lease


RELEASE_WAIT = 10.0  # seconds for a release; the store's own budget is half of that
LOST_WAIT = 0.5  # seconds, when the lease is lost: the release changes nothing


class LeaseThread:
    """A thread that acquires one lease and holds it until ``finish``: the main thread waits for signals and supervises
    the child meanwhile. ``wake`` is called when the lease is granted, asked for, lost or given
    back."""

    def __init__(self, lock: Lock | Campaign, wake: Callable[[], None]) -> None:
        self._lock = lock
        self._wake = wake
        self._over = threading.Event()
        self.lease: Lease | None = None
        self.error: BaseException | None = None  # why there is no lease, or how it ended
        self._thread = threading.Thread(target=self._hold, name="leasehold-run", daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        try:
            with self._lock as lease:
                lease.on_lost(lambda _loss: self._wake())
                lease._held.listen_for_revocation(self._wake)
                self.lease = lease
                self._wake()
                self._over.wait()
        except BaseException as error:  # the main thread handles it
            self.error = error
        finally:
            self._wake()

    def finish(self, lost: bool) -> LeaseLost | None:
        """Give the lease back. Returns the loss, if it was lost before. ``lost``: that is known already, so there is
        no need to wait for the release."""
        self._over.set()
        self._thread.join(LOST_WAIT if lost else RELEASE_WAIT)
        if self.error is None or isinstance(self.error, LeaseLost):
            return self.error
        if isinstance(self.error, LeaseholdError):  # it was not given back, and will expire
            return None
        raise self.error
