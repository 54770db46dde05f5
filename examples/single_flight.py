"""Prices that are slow to fetch: one worker of the fleet fetches them, and all workers show them."""

from collections.abc import Callable
from typing import Any

import leasehold

Prices = dict[str, float]


def price_list(hold: leasehold.Leasehold, fetch: Callable[[str], Prices]) -> Any:
    """``prices(market)``: at most a minute old, or up to ten more while new ones are fetched. A market that is down is
    tried again after five seconds."""

    @hold.single_flight("prices", "{market}", ttl="10s", fresh="1m", stale="10m", errors="5s", wait="20s")
    def prices(market: str) -> Prices:
        return fetch(market)

    return prices


def change_price(prices: Any, market: str, save: Callable[[], None]) -> None:
    """After this, every worker shows the new price."""
    save()
    prices.forget(market)


def main(fetch: Callable[[str], Prices]) -> Prices:
    with leasehold.connect() as hold:  # to the store in LEASEHOLD_URL
        found: Prices = price_list(hold, fetch)("nl")
        return found
