"""Runs one piece of a part in an interpreter of its own, as a program of a user would run: it has imported only what it
needs, and no other piece has left anything in its memory.

``run_alone`` starts ``python -m benchmarks.piece FUNCTION EFFORT PIPE`` and reads the pipe: a tuple for each step, then
a Result or, when the piece failed, the error as text. This module imports little: the piece would have it, too."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name

from benchmarks.report.rows import Result
from benchmarks.rounds import EFFORTS, Setup, Step

LONGEST_END = 5  # seconds, from the result or an interrupt until all is cleaned up

Piece = Callable[[Setup], Result]  # a function of a module, which another interpreter finds by its name


class Failed(RuntimeError):
    """The piece has no result; the text says why."""


# ---------------------------------------------------------------- the process that starts it


def run_alone(piece: Piece, effort: str, step: Step) -> Result:
    """Its result, or Failed. Nothing that the piece started is left afterwards, however it ended."""
    reader, writer = Pipe(duplex=False)
    try:
        with reader, _started(piece, effort, writer) as process:
            writer.close()  # the pipe ends with the process
            return _result(reader, step)
    except EOFError:
        raise Failed(f"its process ended with status {process.returncode}") from None


@contextmanager
def _started(piece: Piece, effort: str, writer: Connection) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own: Ctrl-C on the terminal reaches us alone, and all that it started can be killed."""
    pipe, function = writer.fileno(), f"{piece.__module__}:{piece.__qualname__}"
    command = [sys.executable, "-m", __name__, function, effort, str(pipe)]
    root = Path(__file__).parents[1]
    process = subprocess.Popen(command, cwd=root, pass_fds=[pipe], start_new_session=True)
    try:
        yield process
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # so that it stops its servers and deletes its files
        raise
    finally:
        _end(process)


def _result(reader: Connection, step: Step) -> Result:
    while True:
        match reader.recv():
            case Result() as result:
                return result
            case str(error):
                raise Failed(error)
            case what, number, count:
                step(what, number, count)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let it end by itself, unless that takes long or somebody interrupts again; then kill what is left of it."""
    try:
        process.wait(LONGEST_END)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ---------------------------------------------------------------- the process of the piece


def main(function: str, effort: str, pipe: str) -> None:
    """Run it, and write to the pipe."""
    os.set_inheritable(int(pipe), False)  # a program that the piece starts must not keep it open
    writer = Connection(int(pipe), readable=False)
    try:
        piece: Piece = resolve_name(function)
        with warnings_as_notes() as notes:
            result = piece(Setup(EFFORTS[effort], lambda *step: writer.send(step)))
        writer.send(result + Result([], notes=notes))
    except (Exception, SystemExit) as error:
        writer.send(f"{type(error).__name__}: {error}")


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """What Leasehold warns of while a piece runs, in one line: ten thousand leases may all be late at once."""
    notes: list[str] = []
    logger, seen = logging.getLogger("leasehold"), list[str]()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    handler = Seen(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield notes
    finally:
        logger.removeHandler(handler)
        if seen:
            notes.append(f"Leasehold warned {len(seen):,} times meanwhile. The first warning: {seen[0]}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # its blocks have cleaned up on the way here
        main(*sys.argv[1:])
