import pytest
from payments import main, paid, payments

from leasehold import StaleOwner
from leasehold.patterns import KeyReused
from leasehold.testing import freeze


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "bank.db")


def test_a_payment_is_made_once(hold, connect_leasehold, path):
    here, there = payments(hold, path), payments(connect_leasehold(), path)
    assert here("r-1", "alice", 5) == there("r-1", "alice", 5) == {"account": "alice", "paid": 5}
    assert paid(path) == [("alice", 5)]


def test_the_same_id_for_another_payment(hold, path):
    pay = payments(hold, path)
    pay("r-1", "alice", 5)
    with pytest.raises(KeyReused):
        pay("r-1", "alice", 500)
    assert paid(path) == [("alice", 5)]


def test_a_crash_before_the_commit(hold, path):
    def crash(lease):
        raise SystemExit

    with pytest.raises(SystemExit):
        payments(hold, path, crash)("r-1", "alice", 5)
    assert paid(path) == []
    payments(hold, path)("r-1", "alice", 5)
    assert paid(path) == [("alice", 5)]


def test_one_that_sleeps_past_its_lease_pays_nothing(hold, connect_leasehold, leasehold_clock, path):
    other = payments(connect_leasehold(), path)

    def sleep(lease):
        with freeze(lease):  # as if its process were paused
            leasehold_clock.advance("31s")
            other("r-1", "alice", 5)

    with pytest.raises(StaleOwner):
        payments(hold, path, sleep)("r-1", "alice", 5)
    assert paid(path) == [("alice", 5)]


def test_main(leasehold_url, path, capsys):
    main(path)
    assert "[('alice', 5)]" in capsys.readouterr().out
