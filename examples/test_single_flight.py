import time

import pytest
from single_flight import change_price, main, price_list

from leasehold.patterns import RemoteError
from leasehold.testing import freeze


class Market:
    def __init__(self):
        self.fetched = 0
        self.price = 1.0
        self.down = False

    def fetch(self, market):
        """Slow, and sometimes down."""
        self.fetched += 1
        if self.down:
            raise ConnectionError(f"{market} is down")
        return {"bread": self.price}


@pytest.fixture
def market():
    return Market()


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)  # the rebuild in the background is another thread


def test_the_fleet_fetches_once(hold, connect_leasehold, market):
    ours, theirs = price_list(hold, market.fetch), price_list(connect_leasehold(), market.fetch)
    assert ours("nl") == theirs("nl") == {"bread": 1.0}
    assert market.fetched == 1


def test_old_prices_are_shown_while_new_ones_come(hold, leasehold_clock, market):
    prices = price_list(hold, market.fetch)
    prices("nl")
    market.price = 2.0
    leasehold_clock.advance("2m")
    assert prices("nl") == {"bread": 1.0}
    wait_until(lambda: prices("nl") == {"bread": 2.0})
    assert market.fetched == 2


def test_a_market_that_is_down_is_tried_once(hold, connect_leasehold, leasehold_clock, market):
    market.down = True
    ours, theirs = price_list(hold, market.fetch), price_list(connect_leasehold(), market.fetch)
    with pytest.raises(ConnectionError):
        ours("nl")
    with pytest.raises(RemoteError, match="nl is down"):
        theirs("nl")
    assert market.fetched == 1
    leasehold_clock.advance("6s")
    market.down = False
    assert theirs("nl") == {"bread": 1.0}


def test_a_change_is_seen_by_all_workers(hold, connect_leasehold, market):
    ours, theirs = price_list(hold, market.fetch), price_list(connect_leasehold(), market.fetch)
    ours("nl")
    change_price(theirs, "nl", save=lambda: setattr(market, "price", 3.0))
    assert ours("nl") == {"bread": 3.0}


def test_a_worker_that_was_paused_overwrites_nothing(hold, connect_leasehold, leasehold_clock, market):
    theirs = price_list(connect_leasehold(), market.fetch)

    def slow(name):
        with freeze(hold):  # in the middle of its work, for longer than its ttl
            leasehold_clock.advance("11s")
            theirs(name)
        return {"bread": 0.0}

    assert price_list(hold, slow)("nl") == {"bread": 1.0}
    assert theirs("nl") == {"bread": 1.0}


def test_code_that_connects_by_itself(leasehold_url, market):
    assert main(market.fetch) == main(market.fetch) == {"bread": 1.0}
    assert market.fetched == 1
