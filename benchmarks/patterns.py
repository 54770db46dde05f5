"""What the patterns cost beside what people write by hand: ``python -m benchmarks.patterns [part ...]``.

The parts: hits (a fresh value of single_flight), stampede (many callers on a cold key)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks import single_flight

PARTS: dict[str, Callable[[], None]] = {
    "hits": single_flight.hits,
    "stampede": single_flight.stampede,
}


def main() -> None:
    """Everything, in about a minute; progress goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patterns", description="Every pattern, compared.")
    parser.add_argument("part", nargs="*", help=f"which to run, of {', '.join(PARTS)}; all when none is named")
    parts = parser.parse_args().part or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    for part in parts:
        print(f"{part} ...", file=sys.stderr)
        PARTS[part]()


if __name__ == "__main__":
    main()
