"""Guarantees: what one store promises under each event, in words and as data. ``guarantee_table`` states them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from leasehold._core.guarantee_table import EVENTS, STORES, TABLE, VERDICTS, never
from leasehold._core.light_typing import Any, NamedTuple
from leasehold.errors import Unsupported

PROMISES = {
    "exclusion": "no two holders at the same time",
    "fences": "fences grow in the order of the grants",
    "guarded": "a guard accepts no older fence",
}


class Guarantee(NamedTuple):
    """What holds when one thing happens. ``exclusion``, ``fences`` and ``guarded`` are ``holds``, ``refused`` (kept,
    because nothing is granted meanwhile), ``lost`` (it can be broken) or ``never`` (this cannot happen here)."""

    event: str
    """A stable name, such as ``clock_forward``."""
    when: str
    """The event in words."""
    exclusion: str
    """No two holders believe in one lease at the same time."""
    fences: str
    """Fences grow in the order of the grants."""
    guarded: str
    """A guard accepts no fence that is lower than one it has seen."""
    why: str
    """One sentence."""
    test: str
    """The test that shows it, or shows the loss; empty for ``never``."""

    @property
    def happens(self) -> bool:
        return self.exclusion != "never"

    @property
    def short(self) -> str:
        """The verdict on exclusion, and that on fences where it is another. A guard refuses an older fence always."""
        if not self.happens:
            return "-"
        return self.exclusion + (", fences can fall" if self.fences == "lost" else "")


class Guarantees(NamedTuple):
    """What a store promises. ``str()`` is for people, ``as_dict()`` for programs."""

    store: str
    """A stable name: ``memory``, ``sqlite``, ``redis``, ``sentinel``, ``cluster``, ``redlock``, ``postgresql``,
    ``etcd`` or ``zookeeper``."""
    url: str
    """How its URL begins."""
    events: tuple[Guarantee, ...]
    """One for each event, those that cannot happen too."""

    def under(self, event: str) -> Guarantee:
        """What holds under this event."""
        for one in self.events:
            if one.event == event:
                return one
        raise KeyError(event)

    def as_dict(self) -> dict[str, Any]:
        """For programs: stable keys, in types of JSON."""
        return {
            "store": self.store,
            "url": self.url,
            "promises": dict(PROMISES),
            "verdicts": dict(VERDICTS),
            "events": [one._asdict() for one in self.events],
        }

    def __str__(self) -> str:
        lines = [f"What {self.url} promises", ""]
        for one in self.events:
            if one.happens:
                verdicts = ", ".join(f"{name}: {getattr(one, name)}" for name in PROMISES)
                lines += [f"{one.when}", f"  {verdicts}", f"  {one.why}"]
        lines += ["", *[f"{name}: {meaning}" for name, meaning in (*PROMISES.items(), *VERDICTS.items())]]
        return "\n".join(lines)


def guarantees(store: str, impossible: Mapping[str, str] = MappingProxyType({})) -> Guarantees:
    """What this store promises, by its name in ``STORES``. Nothing is promised of a store that is not there.
    ``impossible``: events that cannot happen with its settings, and why."""
    if store not in STORES:
        raise Unsupported(f"nothing is known about what the store {store} promises: it is none of {', '.join(STORES)}")
    cells = {**TABLE[store], **{event: never(why) for event, why in impossible.items()}}
    stated = [Guarantee(event, when, *cells[event]) for event, when in EVENTS.items()]
    return Guarantees(store, STORES[store], tuple(stated))
