"""The workers of the model, their target, and the evidence."""

from __future__ import annotations

import json
from pathlib import Path

from tests.model.stale_owner import evidence
from tests.model.stale_owner.nest import Nest
from tests.model.stale_owner.targets import Description, open_target
from tests.support.workers.crew import Crew, Running, Worker


class GuardCrew(Crew):
    """Real processes whose leases live in one file and whose counters live behind a guard."""

    def __init__(self, folder: Path, description: Description, nest: Nest) -> None:
        self.description = description
        self.nest = nest
        self.log = str(folder / "log")
        Path(self.log).touch()
        self.target = open_target(description)
        super().__init__(folder)

    def prepare(self) -> str:
        """The plan of each worker."""
        return json.dumps({"target": self.description, "log": self.log})

    @property
    def label(self) -> str:
        """For reports."""
        extra = self.description.extra
        kind = extra.get("way", self.description.kind)
        return "+".join([kind, *["column"] * extra.get("column", False), *filter(None, [extra.get("isolation")])])

    def start(self, arguments: list[str], errors: Path) -> Running:
        """A new process, forked from one that has loaded everything."""
        return self.nest.hatch(arguments, self.folder, errors)

    def bad_moment(self, victim: Worker) -> bool:
        """Somebody else has read and has not written yet."""
        last = evidence.last_line(self.log)
        begun = (evidence.PRESENTED, evidence.READ, evidence.TRY)
        return last is not None and last.worker != victim.name and last.what in begun

    def verdict(self, resource: str) -> evidence.Verdict:
        """What happened to one counter."""
        lines = evidence.read_log(self.log, resource)
        return evidence.judge(lines, self.target.value(resource), self.target.history(resource))

    def close(self) -> None:
        """Reap everybody."""
        super().close()
        self.target.close()
