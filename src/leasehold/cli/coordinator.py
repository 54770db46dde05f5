"""From what somebody typed to a coordinator and a lock, and from errors to exit codes."""

from __future__ import annotations

from leasehold._core.durations import is_long, ttl_ms
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import resource_names
from leasehold.cli import exit_codes
from leasehold.cli.exit_codes import CommandEnded
from leasehold.coordinator import Leasehold, connect
from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.observe import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leasehold.cli.arguments import ElectRequest, RunRequest
    from leasehold.cli.output import Output
    from leasehold.observe.events import Event
    from leasehold.primitives.election import Election
    from leasehold.primitives.lock import Lock

# ---------------------------------------------------------------- naming
#
# NAME of ``leasehold run``: ``kind``, ``kind:id:id`` or, as ``leasehold ls`` shows it, ``namespace/kind:id``.
#
# It is the text form: what is special inside a part is percent-encoded, so that what ``ls`` prints can be typed.


def parse_name(text: str, namespace: str | None = None) -> tuple[str | None, str, list[str]]:
    """Namespace, kind and ids, as ``connect`` and ``lock`` take them. A namespace in the name must be the one that was
    asked for, if any was."""
    resource_names("", text)  # refuses what is no text form
    head, *ids = text.split(":")
    prefix, slash, kind = head.rpartition("/")
    if slash and namespace not in (None, _plain(prefix)):
        raise InvalidRequest(f"the name {text} is not in the namespace {namespace}")
    return _plain(prefix) if slash else namespace, _plain(kind), [_plain(one) for one in ids]


def _plain(part: str) -> str:
    first, *rest = part.split("%")
    return first + "".join([chr(int(one[:2], 16)) + one[2:] for one in rest])


# ---------------------------------------------------------------- opening


LONG = "a ttl over 1 h blocks recovery after a crash for that long; it is renewed anyway, so seconds are enough"


def open_hold(url: str | None, namespace: str | None, observers: Iterable[Callable[[Event], object]] = ()) -> Leasehold:
    """What the user or the environment says about the store is configuration: 78 when it is wrong."""
    log.RECORDS.clear()  # what people should know, the command tells them itself
    try:
        return connect(url, namespace=namespace, observers=observers)
    except (InvalidRequest, Unsupported) as error:
        raise CommandEnded(exit_codes.CONFIG, "failed", str(error)) from error
    except LeaseholdError as error:
        raise failed(error) from error


def open_lock(request: RunRequest, voice: Output) -> tuple[Leasehold, Lock]:
    """What ``leasehold run`` asks for; 2 when that makes no sense."""
    try:
        namespace, kind, ids = parse_name(request.name, request.namespace)
        long = is_long(ttl_ms(request.ttl))
    except InvalidRequest as error:
        raise failed(error) from error
    if long:
        warn_once(voice)
    hold = open_hold(request.url, namespace, () if request.limit is None else [_listener(request, voice)])
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


def _listener(request: RunRequest, voice: Output) -> Callable[[Event], object]:
    """Somebody has mistyped a limit, here or there: else nobody would notice."""

    def listen(event: Event) -> None:
        if type(event).__name__ == "LimitDiffers" and (request.as_json or not request.skip_ok):
            asked, found = event.asked, event.found  # type: ignore[union-attr]  # by its name, and nothing is loaded for it
            voice.say(
                "limit",
                f"{request.name}: others go by a limit of {found}, this one by {asked}: say one --limit everywhere",
                resource=request.name, asked=asked, found=found,
            )  # fmt: skip

    return listen


def open_election(request: ElectRequest, health: Callable[[], bool] | None) -> tuple[Leasehold, Election]:
    """What ``leasehold elect`` asks for; 2 when that makes no sense."""
    try:
        namespace, kind, ids = parse_name(request.name, request.namespace)
        ttl_ms(request.ttl)
    except InvalidRequest as error:
        raise failed(error) from error
    hold = open_hold(request.url, namespace)
    try:
        checks: dict[str, Any] = {}
        if health is not None:
            checks = {"health_start_period": request.health_start_period, "health_retries": request.health_retries}
        return hold, hold.election(
            kind, *ids, ttl=request.ttl, wait=request.wait, value=request.value, health=health, **checks
        )
    except LeaseholdError as error:
        raise failed(error) from error


def warn_once(voice: Output) -> None:
    import warnings

    warnings.simplefilter("ignore", UserWarning)  # the library's own words, with a line of ours beside them
    voice.say("warning", LONG)


def failed(error: BaseException) -> BaseException:
    """An error of the library as the end of a command; any other is a bug, and stays what it is."""
    if isinstance(error, InvalidRequest):
        return CommandEnded(exit_codes.USAGE, "failed", str(error))
    if isinstance(error, Unsupported):
        return CommandEnded(exit_codes.CONFIG, "failed", str(error))
    if isinstance(error, (StoreUnavailable, OutcomeUnknown)):
        return CommandEnded(exit_codes.UNAVAILABLE, "unavailable", f"the store is unavailable: {error}")
    return error
