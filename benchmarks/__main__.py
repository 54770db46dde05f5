"""Runs the benchmark: ``python -m benchmarks [part ...] [--quick] [--out DIR] [--json FILE]``.

A part is a module of ``benchmarks.parts``; its pieces can be named, too, as in ``leases.memory``. Each piece runs in an
interpreter of its own. Each table is printed when it is ready, and a report is written to a folder at the end."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import goals
from benchmarks.piece import Failed, Piece, run_alone
from benchmarks.progress import GREEN, RED, Progress, coloured
from benchmarks.report import files, page
from benchmarks.report.machine import ROOT, facts
from benchmarks.rounds import EFFORTS

# Those with a goal come first.
WITH_GOALS = ("pairs", "tasks", "handoffs", "leases", "embedded", "batches", "startup")
OTHERS = (
    "growth",
    "capacity",
    "postgresql",
    "consensus",
    "topologies",
    "primitives",
    "patterns",
    "jobs",
    "guards",
    "observers",
    "calls",
    "bytecodes",
)
PARTS = (*WITH_GOALS, *OTHERS)
QUICK_PARTS = (
    "pairs",
    "tasks",
    "handoffs",
    "leases",
    "embedded.alone",
    "embedded.processes",
    "batches.near",
    "batches.far",
    "batches.sqlite",
    "startup",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 when a part failed, for example because a lock broke its promise."""
    options = _options(arguments)
    wanted = list(pieces(options.part or (QUICK_PARTS if EFFORTS[options.effort].quick else PARTS)))
    report = files.Report({**facts(), "effort": options.effort})
    _run(report, wanted, options.effort, show=options.json != "-")
    missing = [] if options.part else goals.missing(report.rows, EFFORTS[options.effort].quick)
    if missing:  # its part failed, or a contender was renamed
        report.failures["goals"] = f"not measured: {'; '.join(missing)}"
    if options.page and (left := page.fill(options.page, report)):
        print(f"{options.page} keeps what it had for {', '.join(left)}", file=sys.stderr)
    written = files.write(report, options.out)
    _write_json(report, options.json)
    if options.json != "-" and goals.any_measured(report.rows):
        print(_coloured_goals(goals.table(report.rows)))
    print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)
    return 1 if report.failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Leasehold beside its peers.")
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; or a piece of one, such as leases.memory")
    parser.add_argument("--effort", choices=EFFORTS, default="full", help="tiny only shows that everything works")
    parser.add_argument(
        "--quick", dest="effort", action="store_const", const="quick", help="what has a goal, in under two minutes"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="the folder of the report")
    parser.add_argument("--json", metavar="FILE", help="also write the JSON there; with - to standard output, alone")
    parser.add_argument("--page", type=Path, help="also write the tables between the marks of this Markdown page")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.part if name.partition(".")[0] not in PARTS]:
        parser.error(f"unknown part: {', '.join(unknown)}")
    return options


def pieces(names: Sequence[str]) -> Iterator[tuple[str, Piece]]:
    """The functions to run, by name. A part is imported only when it is wanted: it needs packages of its own."""
    for name in names:
        part, _, wanted = name.partition(".")
        known: dict[str, Piece] = import_module(f"benchmarks.parts.{part}").PIECES
        if wanted and wanted not in known:
            raise SystemExit(f"{part} has the pieces {', '.join(known)}, not {wanted}")
        for piece, run in known.items():
            if wanted in {"", piece}:
                yield (f"{part}.{piece}" if len(known) > 1 else part), run


def _run(report: files.Report, wanted: Sequence[tuple[str, Piece]], effort: str, *, show: bool) -> None:
    """A piece that fails does not take the others with it; the report names it. An interrupt ends the run, and what
    was found until then is still written."""
    progress = Progress(len(wanted))
    try:
        for name, piece in wanted:
            progress.begin(name)
            try:
                report.results[name] = run_alone(piece, effort, progress.step)
            except Failed as failed:
                report.failures[name] = str(failed)
            progress.end(report.failures.get(name, ""))
            if show and name in report.results:
                print(files.part_as_markdown(name, report.results[name]), flush=True)
    except KeyboardInterrupt:
        report.failures[name] = f"interrupted; measured until then: {', '.join(report.results) or 'nothing'}"
        progress.end(report.failures[name])


def _write_json(report: files.Report, target: str | None) -> None:
    if target == "-":
        sys.stdout.write(files.as_json(report))
    elif target:
        Path(target).write_text(files.as_json(report), encoding="utf-8")


def _coloured_goals(table: str) -> str:
    table = re.sub(r"\byes\b(?= \|$)", coloured("yes", GREEN, sys.stdout), table, flags=re.MULTILINE)
    return re.sub(r"\bno\b(?= \|$)", coloured("no", RED, sys.stdout), table, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
