"""How the last ``leasehold run`` ended, in its metrics.

Counters begin at 0 with each run of a crontab, so ``rate()`` and ``increase()`` say nothing there. These gauges do:
what the file of the run before says is kept until this run has ended, and its last success until there is another.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from leasehold._core.names import parse_name

EXIT_CODE = "leasehold_run_exit_code"
LAST_SUCCESS = "leasehold_run_last_success_timestamp_seconds"
HELP = {
    EXIT_CODE: "What the last leasehold run exited with; 75 while another held the lease, also with -E or --skip-ok.",
    LAST_SUCCESS: "When the command of a leasehold run last exited with 0.",
}


class RunOutcome:
    """The gauges of one run. Raises InvalidRequest for a name that is none."""

    def __init__(self, registry: CollectorRegistry, name: str, path: str | None) -> None:
        self._kind = parse_name(name).kind
        self._gauges = {one: Gauge(one, text, ["kind"], registry=registry) for one, text in HELP.items()}
        for one, value in _before(path, self._kind).items():
            self._gauges[one].labels(self._kind).set(value)

    def ended(self, code: int, ran: bool) -> None:
        """``ran``: the command was started. One that was skipped is no success, whatever the code is."""
        self._gauges[EXIT_CODE].labels(self._kind).set(code)
        if ran and code == 0:
            self._gauges[LAST_SUCCESS].labels(self._kind).set(time.time())


def _before(path: str | None, kind: str) -> dict[str, float]:
    """What the file says by now; nothing where it is absent, or of somebody else."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            families = list(text_string_to_metric_families(file.read()))
    except (OSError, ValueError):
        return {}
    samples = [one for family in families for one in family.samples]
    return {one.name: one.value for one in samples if one.name in HELP and one.labels.get("kind") == kind}
