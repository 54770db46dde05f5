"""``leasehold clear`` and ``leasehold revoke``: take a lease away by hand, or ask for it.

``clear`` walks the runbook and prints each answer: what the lease is, who holds it, when it was renewed, whether the
holder is alive, what to look at downstream, and whether waiting is enough. Only then does it evict, and only the holder
that it has shown.
"""

from __future__ import annotations

import json
import os
from time import monotonic, sleep
from typing import Any, NamedTuple

import click

from leasehold._core import resource_flows
from leasehold._core.durations import seconds
from leasehold._core.ops import View
from leasehold._core.policy import MAX_TTL_MS, renew_after
from leasehold._core.types import Grant, public_owner
from leasehold._runtime.identity import process_prefix
from leasehold.cli.arguments import duration
from leasehold.cli.coordinator import failed, open_hold, place_of
from leasehold.cli.downstream import META, Downstream, check_place, downstream
from leasehold.cli.inspection import print_holder, print_lines
from leasehold.cli.liveness import Liveness, liveness, renewed_ago, renewed_lately
from leasehold.cli.log_names import no_pattern, resource_of
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.terminal import echo, elapsed, json_fields, paint, terminal_to_ask, wrapped
from leasehold.coordinator import Leasehold
from leasehold.coordinator.operators import (
    checked_delay_ms,
    eviction_request,
    note_text,
    resource_names_of,
)
from leasehold.errors import InvalidRequest, LeaseholdError, NotHeld, OutcomeUnknown, StoreUnavailable
from leasehold.primitives.inspection import Eviction, Holder, Inspection, inspection

POLL = 1.0  # seconds between two looks at a lease that is waited for
SOON = 0.05  # and at least, when it is about to end
REFUSED, UNKNOWN = "refused", "unknown"  # outcomes for programs, besides ``evicted`` and ``ended``
ROUNDING_MS = 20  # by which two readings of the end of one lease may differ


class ClearRequest(NamedTuple):
    """The options of ``leasehold clear``."""

    name: str
    reason: str
    by: str | None
    guard: str | None
    expect_fence: int | None
    delay: str | None
    wait: bool
    yes: bool
    force: bool


class RevokeRequest(NamedTuple):
    """The options of ``leasehold revoke``."""

    name: str
    fence: int | None = None
    wait: str | None = None
    reason: str | None = None
    by: str | None = None


class Seen(NamedTuple):
    """A resource at one moment, and the one holder that is meant."""

    inspection: Inspection
    grant: Grant
    holder: Holder


# ---------------------------------------------------------------- clear


def clear(url: str | None, namespace: str | None, as_json: bool, request: ClearRequest) -> None:
    """Walk through the runbook, and evict the holder."""
    try:
        by, delay = _checked(request, as_json)
        with open_hold(url, namespace) as hold:
            hold._engine.require("evictions", "clear")
            where = place_of(hold, url)
            meant = request._replace(name=resource_of(hold, where, request.name))
            Walk(hold, where, meant, by, delay, as_json).go()
    except LeaseholdError as error:
        raise failed(error) from error


def _checked(request: ClearRequest, as_json: bool) -> tuple[str, float | None]:
    """Who does it, and the delay, in seconds. A mistake is reported before anything is sent."""
    note_text(request.reason, "--reason")
    by = note_text(operator(request.by), "--by")
    if request.guard is not None:
        check_place(request.guard)
    if request.expect_fence is not None:
        _check_fence(request.expect_fence, "--expect-fence")
    delay = None if request.delay is None else checked_delay_ms(duration(request.delay)) / 1000
    if not request.yes:
        if as_json:
            raise InvalidRequest("with --json nothing is asked: give --yes")
        if not terminal_to_ask():
            raise InvalidRequest("there is no terminal to ask on: give --yes")
    return by, delay


def _check_fence(fence: int, option: str) -> None:
    if fence < 0:
        raise InvalidRequest(f"{option} is a fence as `leasehold inspect` shows it, and none is below zero")


def operator(name: str | None = None) -> str:
    """Who does it, and on which host: for the audit."""
    return f"{name or user()}@{process_prefix().rpartition(':')[0]}"


def user() -> str:
    """Who types: by the user id, and who became that user with sudo."""
    try:
        import pwd
    except ModuleNotFoundError:  # on Windows
        return os.environ.get("USERNAME") or "somebody"
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(os.getuid())
    before = os.environ.get("SUDO_USER", "")
    return f"{before} as {name}" if before.isprintable() and before not in ("", name) else name


class Walk:
    """One ``leasehold clear``, from the first look to the eviction."""

    def __init__(
        self, hold: Leasehold, where: str, request: ClearRequest, by: str, delay: float | None, as_json: bool
    ) -> None:
        self._hold = hold
        self._where = where
        self._request = request
        self._by = by
        self._delay = delay
        self._as_json = as_json
        self._document: dict[str, Any] = {}

    def go(self) -> None:
        """Show, wait, decide, ask, evict. However it ends, programs get one document."""
        try:
            seen = self._decide()
            if seen is None or not self._evict(seen):
                self._end("ended", "It has ended by itself: nothing was evicted.")
        except (click.Abort, KeyboardInterrupt):
            text = _unknown(self._request.name) if self._document.get("outcome") == UNKNOWN else "nothing was done"
            raise CommandEnded(ExitCode.of_signal(2), "aborted", text) from None
        except OutcomeUnknown as error:
            text = f"{_unknown(self._request.name)}. {error}"
            raise CommandEnded(ExitCode.UNAVAILABLE, "unavailable", text) from error
        finally:
            if self._as_json and self._document:
                echo(json.dumps(self._document, indent=2))

    def _decide(self) -> Seen | None:
        """The lease that is to be evicted; None when it has ended."""
        first = self._look()
        self._show(first)
        seen = self._wait(first) if self._request.wait else first
        if seen is None:
            return None
        self._refuse_hasty(seen)
        return self._ask(seen)

    # ------------------------------------------------------------ look

    def _look(self) -> Seen:
        found, view = self._inspect()
        meant = [
            Seen(found, grant, holder)
            for grant, holder in zip(view.holders, found.holders, strict=True)
            if self._request.expect_fence in (None, grant.fence)
        ]
        if len(meant) == 1:
            return meant[0]
        holders = ", ".join(f"{one.owner} with fence {one.fence}" for one in found.holders)
        name = found.resource
        if meant:
            raise InvalidRequest(f"several hold {name}: name one with --expect-fence. They are {holders}")
        if holders:
            raise _changed(name, f"its holder is not the expected one. It is held by {holders}")
        raise CommandEnded(ExitCode.NO, "free", _nobody(found, self._where), resource=name)

    def _inspect(self) -> tuple[Inspection, View]:
        name, view = self._hold._operate(resource_flows.inspect, resource_names_of(self._hold, self._request.name))
        return inspection(name.text, view), view

    def _again(self, before: Seen) -> Seen | None:
        """The same lease now; None when it is over, and nobody else has taken it before our eyes."""
        found, view = self._inspect()
        for grant, holder in zip(view.holders, found.holders, strict=True):
            if (grant.owner, grant.fence) == (before.grant.owner, before.grant.fence):
                return Seen(found, grant, holder)
        if not self._request.wait:
            self._refuse_others(found, before)
        return None

    def _refuse_others(self, found: Inspection, before: Seen) -> None:
        """What one holder had alone, another has now."""
        if found.held and before.holder.mode in ("exclusive", "write"):
            raise _changed(found.resource, "it was taken by another holder meanwhile")

    # ------------------------------------------------------------ show

    def _show(self, seen: Seen) -> None:
        found, holder = seen.inspection, seen.holder
        alive = liveness(holder, seen.grant.holder_address)
        guard = downstream(found.resource, holder, self._request.guard)
        self._document = {
            "resource": found.resource,
            "store": self._hold.store,
            "namespace": self._hold.namespace,
            "holder": json_fields(holder),
            "waiters": len(found.waiters),
            "renewed_ago": renewed_ago(holder),
            "alive": alive._asdict(),
            "guard": None if guard is None else guard._asdict(),
            "outcome": REFUSED,
            "eviction": None,
        }
        if self._as_json:
            return
        echo(paint(printable(found.resource), bold=True))
        print_lines("store", [printable(self._where)])
        print_holder(holder)
        print_lines("waiting", [f"{len(found.waiters)} in the queue"] if found.waiters else ["nobody"])
        print_lines("renewed", [_renewed(holder)])
        print_lines("alive", [_alive(alive)])
        print_lines("downstream", _downstream(guard, holder))
        print_lines("advice", [_advice(holder)])

    def _end(self, outcome: str, text: str) -> None:
        self._document["outcome"] = outcome
        if not self._as_json:
            for line in wrapped(text, ""):
                echo(line)

    # ------------------------------------------------------------ wait

    def _wait(self, seen: Seen) -> Seen | None:
        """Wait for the end of the lease. None when it has ended; the lease when it was renewed, so that its holder is
        alive, or when it has no end."""
        if not self._as_json:
            echo(f"Waiting for its end, in {elapsed(seen.holder.expires_in)} ...")
        while True:
            sleep(min(max(seen.holder.expires_in, SOON), POLL))
            now = self._again(seen)
            if now is None or now.grant.expires_ms > seen.grant.expires_ms + ROUNDING_MS:
                return now
            seen = now

    # ------------------------------------------------------------ decide

    def _refuse_hasty(self, seen: Seen) -> None:
        holder, name = seen.holder, seen.inspection.resource
        if self._request.force:
            return
        if renewed_lately(holder):
            ago, every = elapsed(renewed_ago(holder) or 0.0), elapsed(renew_after(holder.ttl))
            wait = "" if self._request.wait else ", wait with --wait"
            raise CommandEnded(
                ExitCode.BUSY,
                "refused",
                f"{name} was renewed {ago} ago, and a live holder renews every {every}: nothing was evicted. Ask it to "
                f"stop with `leasehold revoke`{wait}, or give --force",
                resource=name,
            )
        if self._delay is not None and self._delay < holder.expires_in:
            raise InvalidRequest(
                f"the holder may work for {elapsed(holder.expires_in)} more: a shorter --delay needs --force, and the "
                "certainty that it has stopped"
            )

    def _ask(self, seen: Seen) -> Seen | None:
        """The lease after the answer; None when it has ended meanwhile. Its holder may have come back as well."""
        if self._request.yes:
            return seen
        closed = self._delay if self._delay is not None else seen.holder.expires_in
        question = (
            f"Evict {seen.holder.owner} (fence {seen.holder.fence}) from {seen.inspection.resource}? "
            f"{nobody_gets(seen.holder, elapsed(closed))}."
        )
        lines = wrapped(f"{printable(question)} [y/N]:", "")
        if not click.confirm("\n".join(lines), err=True, show_default=False, prompt_suffix=" "):
            raise CommandEnded(ExitCode.NO, "aborted", "nothing was done")
        now = self._again(seen)
        if now is not None:
            self._refuse_hasty(now)
        return now

    # ------------------------------------------------------------ evict

    def _evict(self, seen: Seen) -> bool:
        """By owner and fence, as they were shown: whoever came meanwhile is not hit. False when it has ended."""
        hold, name, fence, force = self._hold, seen.inspection.resource, seen.grant.fence, self._request.force
        request = eviction_request(hold, self._request.name, fence, self._request.reason, self._by, self._delay, force)
        self._document["outcome"] = UNKNOWN
        try:
            _, victim, reply = hold._operate(resource_flows.evict, *request, seen.grant.owner)
        except (NotHeld, InvalidRequest, StoreUnavailable) as error:
            self._document["outcome"] = REFUSED
            if not isinstance(error, NotHeld):
                raise
            self._refuse_others(self._inspect()[0], seen)
            return False
        done = Eviction(name, public_owner(victim.owner), reply.fence, reply.closed_ms / 1000)
        self._document["eviction"] = {**json_fields(done), "by": self._by, "reason": self._request.reason.strip()}
        self._end("evicted", _evicted(done, victim, seen.holder))
        return True


# ---------------------------------------------------------------- for people


def _changed(name: str, why: str) -> CommandEnded:
    return CommandEnded(ExitCode.BUSY, "changed", f"nothing was evicted from {name}: {why}", resource=name)


def _unknown(name: str) -> str:
    return f"it is not known whether the holder of {name} was evicted: `leasehold audit` shows it"


def _nobody(found: Inspection, where: str) -> str:
    closed = f"; it is closed for {elapsed(found.closed_for)}" if found.closed_for else ""
    unreadable = "; `leasehold inspect` shows what cannot be read there" if found.unreadable else ""
    return f"nobody holds {found.resource} in {where}{closed}{unreadable}{no_pattern(found.resource)}"


def _renewed(holder: Holder) -> str:
    ago = renewed_ago(holder)
    if ago is None:
        return "unknown: the holder only sets the key of the owner"
    return f"{elapsed(ago)} ago, or granted then; a holder that renews does so every {elapsed(renew_after(holder.ttl))}"


def _alive(alive: Liveness) -> str:
    colours = {True: "green", False: "red", None: "yellow"}
    words = {True: "yes", False: "no", None: "unknown"}
    return f"{paint(words[alive.alive], colours[alive.alive])}: {printable(alive.why)}"


def _downstream(guard: Downstream | None, holder: Holder) -> list[str]:
    if guard is None:
        unnamed = f'no guard is named, by --guard or by "{META}" in its metadata'
        return [f"{unnamed}: only you can know whether a write of this holder that comes late does harm"]
    if not guard.query:
        return [f"look at {printable(guard.place)}: has it seen a fence above {holder.fence}?"]
    return [
        f"has {guard.place}, for this resource, seen a fence above {holder.fence}? Then it refuses this holder:",
        printable(guard.query),
    ]


def _advice(holder: Holder) -> str:
    """Prefer to wait: an eviction does not make it free any earlier."""
    if renewed_lately(holder):
        return "ask the holder first: leasehold revoke"
    if holder.since is None and holder.expires_in * 1000 >= MAX_TTL_MS:  # the end of a key that has none
        return (
            "it has no TTL, or one of a day or more: it may never end. Make sure that its holder is gone; evicted, it "
            "stays closed for a day, or for --delay"
        )
    left = elapsed(holder.expires_in)
    return f"prefer to wait (--wait): it ends in {left} unless it is renewed, and an eviction opens it no earlier"


def nobody_gets(holder: Holder, how_long: str) -> str:
    """What stays closed after an eviction: not all of the resource, if the holder had it beside others."""
    if holder.mode == "permit":
        slots = ", ".join(map(str, holder.slots))
        return f"Nobody gets {'its slots' if len(holder.slots) > 1 else 'its slot'} {slots} for {how_long}"
    return f"{'No writer' if holder.mode == 'read' else 'Nobody'} gets it for {how_long}"


def _evicted(done: Eviction, victim: Grant, holder: Holder) -> str:
    closed = f"{nobody_gets(holder, elapsed(done.closed_for))}. " if done.closed_for else ""
    told = "Its holder is told, if it can be reached. " if victim.holder_address else "Its holder cannot be told. "
    return printable(
        f"Evicted {done.owner} with fence {victim.fence}. {closed}{told}A guard that is presented the fence "
        f"{done.fence} refuses it from now on."
    )


# ---------------------------------------------------------------- revoke


def revoke(url: str | None, namespace: str | None, as_json: bool, request: RevokeRequest) -> None:
    """Ask the holder, or all of several, to release the lease; with ``wait`` wait until it is released. Who cannot be
    asked is not waited for."""
    try:
        if request.fence is not None:
            _check_fence(request.fence, "--fence")
        if request.reason is not None:
            note_text(request.reason, "--reason")
        by = note_text(operator(request.by), "--by")
        give_up = None if request.wait is None else seconds(duration(request.wait), "--wait")
        with open_hold(url, namespace) as hold:
            where = place_of(hold, url)
            meant = request._replace(name=resource_of(hold, where, request.name))
            try:
                _revoke(hold, as_json, meant, by, give_up)
            except NotHeld as error:
                raise CommandEnded(ExitCode.NO, "free", _nobody_to_ask(meant, where), resource=meant.name) from error
    except LeaseholdError as error:
        raise failed(error) from error


def _revoke(hold: Leasehold, as_json: bool, request: RevokeRequest, by: str, give_up: float | None) -> None:
    name, fence = request.name, request.fence
    asked = {one.fence for one in hold.inspect(name).holders if fence in (None, one.fence)}
    reached = hold.revoke(name, fence=fence, reason=request.reason, by=by)
    released = reached and give_up is not None and _released(hold, name, asked, give_up)
    if as_json:
        echo(json.dumps({"resource": name, "reached": reached, "released": released}, indent=2))
    elif released:
        echo(f"{printable(name)} was released.")
    elif reached:
        echo(f"The holder of {printable(name)} was asked to release it. It may go on.")
    if not reached:
        raise CommandEnded(
            ExitCode.NO,
            "unreached",
            "a holder could not be asked: it is gone, or nothing can be pushed to it. `leasehold clear` goes on",
            resource=name,
        )
    if give_up is not None and not released:
        raise CommandEnded(ExitCode.BUSY, "busy", f"{name} is still held after {elapsed(give_up)}", resource=name)


def _nobody_to_ask(request: RevokeRequest, where: str) -> str:
    with_fence = "" if request.fence is None else f" with fence {request.fence}"
    return f"nobody holds {request.name}{with_fence} in {where}: there is nobody to ask{no_pattern(request.name)}"


def _released(hold: Leasehold, name: str, asked: set[int], give_up: float) -> bool:
    """Wait until those that were asked hold it no more."""
    end = monotonic() + give_up
    while asked & {one.fence for one in hold.inspect(name).holders}:
        if monotonic() >= end:
            return False
        sleep(SOON)
    return True
