"""A fence in HTTP headers, there and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import leasehold
from leasehold._core import headers
from leasehold._core.names import make_name
from leasehold._core.types import owner_digest, owner_id, public_owner
from tests.support.tables import each

TOKEN = "host-1:4711:" + "5ec2e7" * 6 + ".9"
MOST = 2**63 - 1


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=4))
def test_a_resource_there_and_back(parts: list[str]) -> None:
    """Whatever the name of a resource is made of, it arrives, in printable ASCII."""
    name = make_name("", parts[0], tuple(parts[1:])).text
    sent = headers.encode(7, name, TOKEN)[headers.RESOURCE]
    assert sent.isascii() and sent.isprintable() and " " not in sent
    assert headers.parse_resource(sent) == name


@each(("text", "fence"), [("1", 1), ("1794768018952706", 1794768018952706), (str(MOST), MOST)])
def test_a_fence(text: str, fence: int) -> None:
    """Decimal digits."""
    assert headers.parse_fence(text) == fence


@each("text", ["", "0", "-1", "+1", " 1", "1 ", "01", "1.0", "1e3", "0x1", "١", "abc", str(MOST + 1), "9" * 400])
def test_what_is_no_fence(text: str) -> None:
    """Signs, spaces, other digits, zero, more than 64 bits."""
    assert headers.parse_fence(text) is None


@each("text", ["%FF", "%C3", "caf%C3"])
def test_what_is_no_resource(text: str) -> None:
    """Bytes that are not UTF-8."""
    assert headers.parse_resource(text) is None


def test_other_escapes_belong_to_the_name() -> None:
    """A colon inside an id is %3A in the name itself, and stays so; half an escape is text."""
    for name in ("job:a%3Ab", "job:%25", "%", "%2", "%zz"):
        assert headers.parse_resource(name) == name


def test_the_owner_is_recognised_without_its_secret() -> None:
    """The id of an owner shows who it is and stands for the same owner; it opens nothing."""
    public = owner_id(TOKEN)
    assert public.startswith("host-1:4711#") and "5ec2e7" not in public
    assert owner_digest(public) == owner_digest(TOKEN) and public_owner(public) == "host-1:4711"
    assert owner_id(public) == public


def test_a_lease_sends_all_of_it() -> None:
    """Fence, resource and owner."""
    with leasehold.connect("memory://") as hold, hold.lock("report export", "é") as lease:
        sent = lease.headers()
        assert sent == headers.encode(lease.fence or 0, lease.resource, lease.owner)
        assert sent["X-Fencing-Resource"] == "report%20export:%C3%A9"
        assert lease.owner.rpartition(":")[2].partition(".")[0] not in str(sent)
    assert headers.encode(1, "a", TOKEN, shared=True)["X-Fencing-Mode"] == "shared"
