"""URLs of etcd: forms and options, and what is said about a bad one. Nothing is sent here."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.errors import InvalidRequest
from leasehold.stores.etcd.urls import PARTS, Endpoint, Target, from_url
from tests.support.tables import each

SECRET = "hunter2"


@each(
    "url, target",
    [
        ("etcd://host", Target((Endpoint("host"),))),
        ("etcd://host/", Target((Endpoint("host"),))),
        ("etcd://host:4001/app", Target((Endpoint("host", 4001),), "app")),
        ("etcd://host/app/", Target((Endpoint("host"),), "app")),
        ("etcd://host/team/app%20x", Target((Endpoint("host"),), "team/app x")),
        ("etcd://a,b:1,[::1]", Target((Endpoint("a"), Endpoint("b", 1), Endpoint("::1")))),
        ("etcd://[fe80::1]:2", Target((Endpoint("fe80::1", 2),))),
        ("etcd://u:p%40%2F%3F@host", Target((Endpoint("host"),), user="u", password="p@/?")),
        ("etcds://host", Target((Endpoint("host"),), tls={})),
        ("etcd://host?tls=1", Target((Endpoint("host"),), tls={})),
        ("etcd://host?tls=0", Target((Endpoint("host"),))),
    ],
)  # fmt: skip
def test_what_works(url: str, target: Target) -> None:
    """Each part has its place, and what is left out its default."""
    assert from_url(url) == target


@each(
    "url, complaint",
    [
        ("etcd:", "that is no URL of etcd"),
        ("http://host", "that is no URL of etcd"),
        ("etcd://", "that is no URL of etcd"),
        ("etcd:///app", "a host without a name"),
        ("etcd://a,,b", "a host without a name"),
        ("etcd://:2379", "a host without a name"),
        ("etcd://host:", "a port is a number"),
        ("etcd://host:0", "a port is a number"),
        ("etcd://host:65536", "a port is a number"),
        ("etcd://host:x", "a port is a number"),
        ("etcd://::1", "a host without a name"),
        ("etcd://[::1", "an IPv6 address stands in brackets"),
        ("etcd://[::1]2379", "an IPv6 address stands in brackets"),
        ("etcd://[]:2379", "a host without a name"),
        ("etcd://a,a:2379", "the same host and port twice"),
        ("etcd://host/a//b", "an empty part"),
        ("etcd://host//", "an empty part"),
        ("etcd://host/a/../b", "an empty part, '.' or '..'"),
        *[(f"etcd://host/app/{part}", "ends in r, w, g or n") for part in PARTS],
        ("etcd://host/g", "ends in r, w, g or n"),
        ("etcd://host/%ff", "characters that are no text"),
        ("etcd://host/a%00b", "characters that are no text"),
        ("etcd://host/a b", "a space or a control character"),
        ("etcd://host/\udcff", "cannot be sent as UTF-8"),
        ("etcd://host/app#x", "percent-encode it as %23"),
        ("etcd://host?cacert=x", "no option 'cacert': did you mean"),
        ("etcd://host?wait=5", "no option 'wait': there are tls, ca, cert, key"),
        ("etcd://host?tls=1&tls=1", "the option tls twice"),
        ("etcd://host?tls=", "the option tls of the URL has no value"),
        ("etcd://host?tls=maybe", "tls= is 1 or 0, not 'maybe'"),
        ("etcd://host?ca=x", "are for TLS: write etcds://"),
        ("etcds://host?tls=0", "etcds:// is TLS, and tls=0 is none"),
        ("etcds://host?key=x", "key= belongs to a certificate"),
        ("etcds://host?ca=/nowhere.pem", "ca=, cert= and key= cannot be used"),
        (f"etcd://user:{SECRET}@", "a host without a name"),
        (f"etcd://user:x@{SECRET}@host", "percent-encode"),
        (f"etcd://user:x/{SECRET}@host", "percent-encode"),
        (f"etcd://user:x?{SECRET}@host", "percent-encode"),
        (f"etcd://:{SECRET}@host", "a password without a user"),
        ("etcd://user@host", "a user without a password"),
        ("etcd://user:@host", "a user without a password"),
    ],
)
def test_what_does_not(url: str, complaint: str) -> None:
    """One sentence says what is wrong; what may be a password is not shown."""
    with pytest.raises(InvalidRequest) as error:
        from_url(url)
    assert complaint in str(error.value), str(error.value)
    assert SECRET not in str(error.value) and "\n" not in str(error.value)


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    """They are found before anything is sent."""
    file = tmp_path / "file.pem"
    file.write_text("nothing")
    for option in ("ca", "cert"):
        with pytest.raises(InvalidRequest, match="cannot be used"):
            from_url(f"etcds://host?{option}={file}")


def test_a_target_shows_no_password() -> None:
    """Nor does the name that errors give it."""
    target = from_url(f"etcd://user:{SECRET}@a,[::1]:2380/app")
    assert target.server == "etcd at a:2379,[::1]:2380"
    assert SECRET not in repr(target) + str(target)
