"""The stores that connect opens: one list, which connect and its errors follow."""

from __future__ import annotations

import pytest

import leasehold
from leasehold import InvalidRequest
from leasehold._core.guarantee_table import STORES
from leasehold._core.schemes import OPENED, examples, store_of
from tests.support.tables import each

SCHEMES = [(store, scheme) for store, opened in OPENED.items() for scheme in opened.schemes]
ERRORS = {"http://host": InvalidRequest, "host": InvalidRequest}


@each("store, scheme", SCHEMES)
def test_every_scheme_leads_to_its_store(store: str, scheme: str) -> None:
    """Whichever way it is written. A coordinator connects at its first call, so no server is needed here."""
    place = "/run/redis.sock" if scheme == "unix" else OPENED[store].example.partition("://")[2]
    with leasehold.connect(f"{scheme}://{place}") as hold:
        assert hold.guarantees.store == store == store_of(scheme)


def test_examples_are_opened() -> None:
    """What an error tells people to write can be written."""
    for store, opened in OPENED.items():
        with leasehold.connect(opened.example) as hold:
            assert hold.guarantees.store == store


@each("url, error", ERRORS.items())
def test_errors_name_every_store(url: str, error: type[Exception]) -> None:
    """One that is added is named by itself."""
    with pytest.raises(error) as info:
        leasehold.connect(url)
    assert str(info.value).endswith(examples())
    assert all(opened.example in examples() for opened in OPENED.values())


def test_the_list_and_the_guarantees_have_the_same_names() -> None:
    """What is opened is stated, in the same order."""
    assert list(OPENED) == list(STORES)
