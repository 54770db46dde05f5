"""Libraries in C that are preloaded into a server, and the files by which a test tells them what to do."""

from __future__ import annotations

import mmap
import subprocess
import tempfile
import weakref
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.support.servers.process import home, temporary


class SharedFile:
    """A file that a test writes to and a server reads, both as memory: a change is seen at once."""

    def __init__(self, name: str, size: int) -> None:
        with tempfile.NamedTemporaryFile(prefix=f"{name}-", dir=home(), delete=False) as file:
            file.truncate(size)
            Path(file.name).chmod(0o644)  # for a server that runs as somebody else
            self.page = mmap.mmap(file.fileno(), size)
        self.path = Path(file.name)
        weakref.finalize(self, self.path.unlink, missing_ok=True).atexit = False  # the folder goes anyway


@cache
def library(name: str) -> Path:
    """Compiled once for each process of the tests."""
    built = temporary() / f"{name}.so"  # not in memory, where programs may be forbidden
    built.parent.chmod(0o711)
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
    return built


def together(environments: Iterable[dict[str, str]]) -> dict[str, str]:
    """The environment of a server that needs several libraries."""
    whole: dict[str, str] = {}
    for one in environments:
        preloaded = [part["LD_PRELOAD"] for part in (whole, one) if "LD_PRELOAD" in part]
        whole |= one
        if preloaded:
            whole["LD_PRELOAD"] = ":".join(preloaded)
    return whole
