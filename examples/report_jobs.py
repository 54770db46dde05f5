"""Exports reports in the background: each export takes effect once, whatever happens to its worker."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from leasehold.patterns import Job, Jobs


class Reports:
    def __init__(self, path: str, lease: str = "30s") -> None:
        self.path = path
        self.jobs = Jobs(self.begin, lease=lease)

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at its end, rolled back after an error."""
        with closing(sqlite3.connect(self.path)) as db, db:
            yield db

    def make_tables(self) -> None:
        """Called once, when the program starts."""
        self.jobs.create()
        with self.begin() as db:
            db.execute("CREATE TABLE IF NOT EXISTS reports (id INTEGER PRIMARY KEY, title TEXT, content TEXT)")

    def order(self, report_id: int, title: str) -> None:
        """Insert the report and its job, both or neither. A report that is ordered twice is made once."""
        with self.begin() as db:
            db.execute("INSERT OR IGNORE INTO reports (id, title) VALUES (?, ?)", (report_id, title))
            self.jobs.enqueue({"report": report_id}, key=f"report:{report_id}", tx=db)

    def export(self, job: Job, render: Callable[[str], str] = str.upper) -> None:
        """Save the content and complete the job in one step: a worker that was superseded saves nothing."""
        with self.begin() as db:
            [(title,)] = db.execute("SELECT title FROM reports WHERE id = ?", (job.payload["report"],))
        content = render(title)  # takes long; heartbeats keep the job during that time
        with self.begin() as db:
            db.execute("UPDATE reports SET content = ? WHERE id = ?", (content, job.payload["report"]))
            job.complete(tx=db)


def main(path: str) -> None:
    reports = Reports(path)
    reports.make_tables()
    reports.order(42, "sales of november")
    reports.order(42, "sales of november")
    print(reports.jobs.counts())
    print(reports.jobs.work(reports.export, drain=True), "done")
    print(reports.jobs.counts())


if __name__ == "__main__":
    main(sys.argv[1])
