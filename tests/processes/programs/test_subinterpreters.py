"""Sub-interpreters: nobody could renew or give back there, so that connect() refuses, and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import play

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import leasehold  # in the main interpreter it works, before and after

if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    make = {"legacy": lambda: interpreters.create("legacy"), "isolated": lambda: interpreters.create("isolated")}
    run = interpreters.exec
else:
    import _xxsubinterpreters as interpreters
    make = {"legacy": lambda: interpreters.create(isolated=False), "isolated": interpreters.create}
    run = interpreters.run_string

INSIDE = '''
import sys
sys.path[:] = PATH
import leasehold
for connect in (leasehold.connect, leasehold.aio.connect):
    try:
        connect(URL)
    except leasehold.Unsupported as error:
        assert "main interpreter" in str(error) and "WSGIApplicationGroup" in str(error)
        print("refused", flush=True)
'''

url, kind = sys.argv[1:]
hold = leasehold.connect(url)
with hold.lock("job", ttl=5) as lease:
    inner = make[kind]()
    run(inner, INSIDE.replace("PATH", repr(sys.path)).replace("URL", repr(url)))
    interpreters.destroy(inner)
    lease.check()
print("main", lease.state)
"""


@pytest.mark.parametrize("kind", ["legacy", "isolated"])
def test_sub_interpreters_are_refused(url: str, kind: str, tmp_path: Path) -> None:
    """In either kind, on every store, in both flavours; the main interpreter goes on."""
    assert play(PROGRAM, tmp_path, url, kind) == ["refused", "refused", "main released"]
