"""What every test may ask for, and what makes all of them quicker."""

import gc
import os
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import QUICK
from tests.support.hard_limit import HardLimit
from tests.support.repeats import Repeats

pytest_plugins = [
    "pytester",
    "tests.support.servers.fixtures",
    "tests.support.servers.database_fixtures",
    "tests.support.servers.ensemble_fixtures",
]

for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    # nohup, and a shell that starts us in the background, have us ignore them; programs that tests start would inherit
    # that, and some are tested by these signals. A handler that does nothing is not inherited.
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


# How long an example takes, or to draw it, says how busy the machine is.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("busy"), max_examples=QUICK)
settings.load_profile("busy")

# The authorities that a TLS context trusts by default: one in place of those of the system, which take OpenSSL 30
# milliseconds to read, again for each context. Tests name the authorities of their servers themselves.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "authority.pem")


def memory_for_folders() -> str:
    """Where folders in memory can be made, for ``tmp_path``: nothing where there is no room, or programs may not run.

    On a disk each commit of SQLite takes a millisecond and more.
    """
    memory = "/dev/shm"
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 1 << 30:
        return ""
    return "" if os.statvfs(memory).f_flag & os.ST_NOEXEC else memory


if _memory := memory_for_folders():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _memory)


def pytest_configure(config: pytest.Config) -> None:
    """A run comes to its end, whatever hangs, and a server that misbehaves once does not fail it."""
    config.pluginmanager.register(HardLimit(soak=config.getoption("-m") == "soak"))
    config.pluginmanager.register(Repeats(Path(__file__).parent))
    if "not slow" in config.getoption("-m"):
        settings.load_profile("quick")  # before modules are imported, since decorators take their settings from it


gc.disable()  # nothing is garbage while tests are collected


def pytest_collection_finish() -> None:
    """Ten thousand tests stay until the end: whoever collects garbage, and every child that is forked, leaves them."""
    gc.freeze()
    gc.enable()
