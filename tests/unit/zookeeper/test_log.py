"""What kazoo says about connections is for a program's logging, and is not printed by itself. Nobody is there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import leasehold
from leasehold import StoreUnavailable
from tests.support.servers.process import reserve

TRY = """
    import logging, sys
    import leasehold

    {setup}
    with leasehold.connect(sys.argv[1]) as hold:
        try:
            hold.lock("job").acquire(wait=0)
        except leasehold.StoreUnavailable as error:
            print(error)
"""


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a port that nobody listens on."""
    with reserve() as place:
        yield f"zk://127.0.0.1:{place.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("setup", ["", "logging.basicConfig()"], ids=["unconfigured", "configured"])
def test_what_is_printed(nowhere: str, setup: str) -> None:
    """Without a configuration the error alone; with one the warnings of kazoo, too."""
    program = textwrap.dedent(TRY).format(setup=setup)
    ran = subprocess.run([sys.executable, "-c", program, nowhere], capture_output=True, text=True, check=True)
    assert "cannot be reached: Connection refused" in ran.stdout
    if setup:
        assert "WARNING:leasehold.zookeeper:Connection dropped:" in ran.stderr
    else:
        assert ran.stderr == ""


@pytest.mark.slow
def test_a_handler_for_leasehold_has_it(nowhere: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its logger is below that of the library, and nothing goes to kazoo's own."""
    with leasehold.connect(nowhere) as hold, pytest.raises(StoreUnavailable):
        hold.lock("job").acquire(wait=0)
    assert {record.name for record in caplog.records if "onnect" in record.message} == {"leasehold.zookeeper"}
