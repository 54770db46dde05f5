"""Prices that are slow to get: one worker of the fleet asks for them, and everybody shows them."""

from collections.abc import Callable
from typing import Any

import leasehold

Prices = dict[str, float]


def price_list(hold: leasehold.Leasehold, fetch: Callable[[str], Prices]) -> Any:
    """``prices(market)``: at most a minute old, or ten more while somebody asks for new ones. A market that is down is
    asked again after five seconds."""

    @hold.single_flight("prices", "{market}", ttl="10s", fresh="1m", stale="10m", errors="5s", wait="20s")
    def prices(market: str) -> Prices:
        return fetch(market)

    return prices


def change_price(prices: Any, market: str, save: Callable[[], None]) -> None:
    """Whoever shows a price after this shows the new one."""
    save()
    prices.forget(market)


def main(fetch: Callable[[str], Prices]) -> Prices:
    with leasehold.connect() as hold:  # where LEASEHOLD_URL says
        found: Prices = price_list(hold, fetch)("nl")
        return found
