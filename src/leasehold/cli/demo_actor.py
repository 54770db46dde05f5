"""A worker process as the director of the demo sees it: told what to do, listened to, frozen, woken, ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from leasehold.cli.demo_worker import PATIENCE

FAILED, NO_STORE = 1, 69
# The worker must find the same modules as we did, wherever those came from.
START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from leasehold.cli.demo_worker import main; "


class DemoFailed(Exception):
    """Something did not go as the demo tells it. ``code`` is what to exit with."""

    def __init__(self, why: str, code: int = FAILED) -> None:
        super().__init__(why)
        self.code = code


class Actor:
    """One worker process."""

    def __init__(self, name: str, folder: Path, guarded: bool) -> None:
        self.name = name
        self._errors = folder / f"{name}.err"
        self._heard = b""
        program = START + f"main({name!r}, {str(folder)!r}, {guarded!r})"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")},
                start_new_session=True,  # Ctrl-C is for the director, who ends everybody in order
            )
        self._words = cast(IO[bytes], self._process.stdin)
        self._answers = cast(IO[bytes], self._process.stdout)

    def tell(self, word: str) -> None:
        with suppress(BrokenPipeError):  # it has ended: hear() says why
            self._words.write(f"{word}\n".encode())

    def hear(self, *wanted: str) -> dict[str, Any]:
        """What it tells next, which must be one of these."""
        told: dict[str, Any] = json.loads(self._line())
        if told["event"] == "error":
            code = NO_STORE if told["kind"] == "StoreUnavailable" else FAILED
            raise DemoFailed(f"worker {self.name} failed with {told['kind']}: {told['text']}", code)
        if told["event"] not in wanted:
            raise DemoFailed(f"worker {self.name} told {told['event']!r} where {' or '.join(wanted)} was due")
        return told

    def _line(self) -> bytes:
        give_up = time.monotonic() + PATIENCE
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._answers], [], [], max(give_up - time.monotonic(), 0))
            data = os.read(self._answers.fileno(), 4096) if ready else b""
            if not data:
                ended = "ended" if ready else f"said nothing for {PATIENCE:g} s"
                raise DemoFailed(f"worker {self.name} {ended}. {self._last_words()}".rstrip())
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _last_words(self) -> str:
        return self._errors.read_text(errors="replace").strip()[-1000:]

    def freeze(self) -> None:
        """Stop it, and return when the kernel says that it stands still."""
        self._process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise DemoFailed(f"worker {self.name} ended and could not be frozen. {self._last_words()}")

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Let it end by itself."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"worker {self.name} did not end") from None
        if code != 0:
            raise DemoFailed(f"worker {self.name} ended with {code}. {self._last_words()}".rstrip())

    def end(self) -> None:
        """End it now if it has not ended, frozen or not, and leave no zombie."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._words.close()
        self._answers.close()


@contextmanager
def workers(folder: Path, guarded: bool) -> Iterator[tuple[Actor, Actor]]:
    """A and B, ready; both have ended when this is left, whatever happened."""
    actors: list[Actor] = []
    try:
        actors.extend(Actor(name, folder, guarded) for name in "AB")
        for actor in actors:
            actor.hear("ready")
        yield actors[0], actors[1]
    finally:
        for actor in actors:
            actor.end()
