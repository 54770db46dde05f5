"""JsonFormatter: one JSON object for each record, whatever it carries."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

import leasehold
from leasehold.observe import JsonFormatter


def formatted(static: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A record with these fields, as it is written and read again."""
    line = JsonFormatter(static).format(logging.makeLogRecord({"msg": "%s happened", "args": ("it",), **fields}))
    assert "\n" not in line
    document: dict[str, Any] = json.loads(line)
    return document


def test_the_fields_of_a_record() -> None:
    """Time, level, logger and text, and every extra as it is."""
    found = formatted(name="leasehold.lease", levelname="WARNING", created=1e9, fence=7, reason="expired", seen=None)
    assert found == {
        "time": "2001-09-09T01:46:40.000+00:00", "level": "WARNING", "logger": "leasehold.lease",
        "message": "it happened", "fence": 7, "reason": "expired", "seen": None,
    }  # fmt: skip


def test_our_own_records_carry_their_fields(caplog: pytest.LogCaptureFixture) -> None:
    """The event, the kind and the hash of the ids, and the whole name where ids are shown; never a token."""
    caplog.set_level(logging.DEBUG, "leasehold")
    with leasehold.connect("memory://json", show_ids=True) as hold, hold.lock("report", 42) as lease:
        pass
    found = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [one["event"] for one in found] == ["store_connecting", "lease_acquired", "lease_released"]
    assert (found[1]["kind"], found[1]["id_hash"], found[1]["resource"]) == ("report", "2cfe7600489b", "report:42")
    assert found[1]["fence"] == lease.fence and lease.owner not in str(found)
    assert "resource=report:42" in found[1]["message"]


def test_ids_are_hashed_unless_they_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    """So they are with a key, too, though they were to be shown."""
    caplog.set_level(logging.DEBUG, "leasehold")
    for key in (None, "key"):
        hold = leasehold.connect("memory://json", hide_ids=key, show_ids=key is not None)
        lease = hold.lock("report", "customer-4711").acquire()
        with pytest.raises(leasehold.NotAcquired) as refused:
            hold.lock("report", "customer-4711", wait=0).__enter__()
        assert lease is not None and "resource" not in lease.log_context()
        hold.close()
    text = str([vars(record) for record in caplog.records]) + str(refused.value) + repr(lease) + repr(hold)
    assert "customer-4711" not in text


def test_messages_with_ids() -> None:
    """Errors and reprs name the resource as it is typed."""
    with leasehold.connect("memory://json", namespace="acme", show_ids=True) as hold:
        with hold.lock("report", 42) as lease:
            with pytest.raises(leasehold.NotAcquired, match=r"^acme/report:42 is held by"):
                hold.lock("report", 42, wait=0).__enter__()
            assert repr(lease).startswith("<Lease acme/report:42 owner=")
            assert lease.log_context()["resource"] == "acme/report:42"
        with pytest.raises(leasehold.NotHeld, match="the lease on acme/report:42 was released"):
            lease.check()
        with pytest.raises(leasehold.NotHeld, match="nobody with fence 1 holds acme/report:42 now"):
            hold.evict("report:42", fence=1, reason="a test")


def test_values_that_are_no_json() -> None:
    """They are written as their text; nothing is lost for them."""
    circle: list[Any] = []
    circle.append(circle)

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    found = formatted(at=datetime(2026, 1, 1), nan=float("nan"), circle=circle, rude=Rude(), keys={(1, 2): 3})  # noqa: DTZ001  # any will do
    assert (found["at"], found["nan"], found["circle"]) == ("2026-01-01 00:00:00", "nan", "[[...]]")
    assert (found["rude"], found["keys"]) == ("<Rude>", "{(1, 2): 3}")


def test_names_that_are_taken() -> None:
    """An extra called ``time`` stands beside ours."""
    found = formatted({"service": "billing", "level": 3}, time="noon")
    assert (found["service"], found["level_"], found["time_"]) == ("billing", 3, "noon")
    assert found["time"] != "noon"


def test_exceptions_and_stacks() -> None:
    """As text, in the same line."""
    try:
        raise ValueError("why")
    except ValueError:
        found = formatted(exc_info=sys.exc_info(), stack_info="Stack:\n  here")
    assert found["exception"].endswith("ValueError: why") and found["stack"] == "Stack:\n  here"
    assert formatted(exc_text="as it was")["exception"] == "as it was"


def test_nothing_heavy_is_loaded_before_it_is_used() -> None:
    """Importing the package costs no ``logging`` and no ``json``."""
    program = "import sys, leasehold.observe; assert not {'logging', 'json', 're'} & set(sys.modules)"
    subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"], check=True)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        leasehold.observe.Nothing  # noqa: B018  # that is the point
