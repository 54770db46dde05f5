"""Spans of waits and of leases, for ``OpenTelemetryObserver``.

    leasehold wait    from the call to its end, when it had to wait; linked to the holder
    leasehold hold    from the grant to the end of the lease, with events renewed, unsure, lost
    leasehold lease   around both, when the caller is in no span

Their parent is the caller's span. They are never made the current one, so the caller's own spans do not change.

A link must lead to a span that exists. That cannot be ``leasehold hold``: it begins with the grant, and the holder's
metadata is written with the claim. So a link leads to the span around it: the caller's own, or ``leasehold lease``.
``leasehold hold`` is its child.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, StatusCode, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leasehold._core.light_typing import Any
from leasehold.observe import events
from leasehold.observe.log import INTENDED
from leasehold.observe.metrics import at_fork

FIELD = "traceparent"  # in the holder's metadata, as in an HTTP header


class Spans:
    """The spans that are open now, by the number of their lease."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.forked()
        at_fork(self)

    def forked(self) -> None:
        """The parent process ends its own spans."""
        self._around: dict[int, Span] = {}
        self._waiting: dict[int, Span] = {}
        self._holding: dict[int, Span] = {}

    def carry(self, number: int) -> Mapping[str, str]:
        """The context of the span around the lease; empty when that span is not sampled, and so never exported."""
        span = get_current_span()
        if not span.get_span_context().is_valid:
            span = self._tracer.start_span("leasehold lease")
            if span.is_recording():
                self._around[number] = span
        context = span.get_span_context()
        if not context.is_valid or not context.trace_flags.sampled:
            return {}
        return {FIELD: f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}

    def handle(self, event: events.Event) -> None:
        """Begin, mark or end the spans that this event is about."""
        handler = HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    # ------------------------------------------------------------ the wait

    def contended(self, event: events.Contended) -> None:
        if not event.queued:  # a single try does not wait
            return
        began = time.time_ns() - int(event.waited * 1e9)
        attributes = {**_attributes(event.lease), "leasehold.holder": event.holder}
        self._waiting[event.lease.number] = self._tracer.start_span(
            "leasehold wait",
            self._parent(event.lease.number),
            attributes=attributes,
            links=_links(event.holder_meta),
            start_time=began,
        )

    def acquired(self, event: events.Acquired) -> None:
        self._waited(event.lease.number, "acquired")
        self._holding[event.lease.number] = self._tracer.start_span(
            "leasehold hold", self._parent(event.lease.number), attributes=_attributes(event.lease)
        )

    def refused(self, event: events.Refused) -> None:
        failed = event.outcome not in ("busy", "cancelled")
        self._waited(event.lease.number, event.outcome, failed)
        around = self._around.pop(event.lease.number, None)
        if around is not None:
            around.set_attributes(_attributes(event.lease))
            _end(around, event.outcome, failed)

    def _waited(self, number: int, outcome: str, failed: bool = False) -> None:
        span = self._waiting.pop(number, None)
        if span is not None:
            _end(span, outcome, failed)

    def _parent(self, number: int) -> Context | None:
        """None: the span that is current in the caller."""
        around = self._around.get(number)
        return None if around is None else set_span_in_context(around)

    # ------------------------------------------------------------ the lease

    def renewed(self, event: events.Renewed) -> None:
        self._mark(event.lease.number, "renewed", {"leasehold.slack": event.slack})

    def not_renewed(self, event: events.NotRenewed) -> None:
        if event.outcome == "failed":  # otherwise a ``Lost`` follows
            self._mark(event.lease.number, "unsure", {"leasehold.error": event.error})

    def fenced_off(self, event: events.FencedOff) -> None:
        more = {"leasehold.downstream": event.downstream}
        self._mark(
            event.lease.number, "fenced_off", more if event.seen is None else {**more, "leasehold.seen": event.seen}
        )

    def limit_differs(self, event: events.LimitDiffers) -> None:
        more = {"leasehold.asked": event.asked, "leasehold.found": event.found}
        self._mark(event.lease.number, "limit_differs", more)

    def lost(self, event: events.Lost) -> None:
        self._mark(event.lease.number, "lost", {"leasehold.reason": event.reason})
        self._ended(event, event.reason, event.reason not in INTENDED)

    def released(self, event: events.Released) -> None:
        self._ended(event, "released")

    def stale(self, event: events.StaleRelease) -> None:
        self._ended(event, "not_owner", failed=True)

    def unknown(self, event: events.ReleaseUnknown) -> None:
        self._ended(event, "unknown")

    def _mark(self, number: int, name: str, attributes: Mapping[str, Any]) -> None:
        span = self._holding.get(number)
        if span is not None:
            span.add_event(name, attributes)

    def _ended(self, event: Any, outcome: str, failed: bool = False) -> None:
        """The first event that ends the lease ends its span."""
        span = self._holding.pop(event.lease.number, None)
        if span is None:
            return
        _end(span, outcome, failed)
        around = self._around.pop(event.lease.number, None)
        if around is not None:
            around.set_attributes(_attributes(event.lease))
            _end(around, outcome, failed)


def _attributes(lease: events.Subject) -> dict[str, str | int]:
    """The part of a lease that may be shown."""
    shown: dict[str, str | int] = {
        "leasehold.kind": lease.kind,
        "leasehold.id_hash": lease.id_hash,
        "leasehold.owner_prefix": lease.owner_prefix,
        "leasehold.store": lease.store,
        "leasehold.ttl_ms": lease.ttl_ms,
    }
    return shown if lease.fence is None else {**shown, "leasehold.fence": lease.fence}


def _links(holder_meta: Mapping[str, Any]) -> list[Link]:
    """A link to the holder's span, if the holder's metadata names one. It is not trusted: other programs may have
    written it."""
    value = holder_meta.get(FIELD)
    if not isinstance(value, str):
        return []
    found = TraceContextTextMapPropagator().extract({FIELD: value}, Context())
    context = get_current_span(found).get_span_context()
    return [Link(context)] if context.is_valid else []


def _end(span: Span, outcome: str, failed: bool = False) -> None:
    span.set_attribute("leasehold.outcome", outcome)
    if failed:
        span.set_status(StatusCode.ERROR, outcome)
    span.end()


HANDLERS: dict[type, Callable[[Spans, Any], None]] = {
    events.Contended: Spans.contended,
    events.Acquired: Spans.acquired,
    events.Refused: Spans.refused,
    events.Renewed: Spans.renewed,
    events.NotRenewed: Spans.not_renewed,
    events.FencedOff: Spans.fenced_off,
    events.LimitDiffers: Spans.limit_differs,
    events.Lost: Spans.lost,
    events.Released: Spans.released,
    events.StaleRelease: Spans.stale,
    events.ReleaseUnknown: Spans.unknown,
}
