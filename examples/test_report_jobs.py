import multiprocessing
import os
import signal
import sqlite3

import pytest
from report_jobs import Reports

from leasehold import StaleOwner


@pytest.fixture
def reports(tmp_path):
    reports = Reports(str(tmp_path / "app.db"))
    reports.make_tables()
    reports.order(42, "sales")
    return reports


def content(reports):
    with reports.begin() as db:
        return db.execute("SELECT content FROM reports").fetchall()[0][0]


def expire(reports):
    with reports.begin() as db:  # as if the lease had run out
        db.execute("UPDATE jobs SET lease_until = '2000-01-01'")


def test_ordered_twice_is_made_once(reports):
    reports.order(42, "sales")
    assert reports.jobs.work(reports.export, drain=True) == 1
    assert content(reports) == "SALES"


def order_what_is_there(reports):
    with reports.begin() as db:
        reports.jobs.enqueue({"report": 43}, tx=db)
        db.execute("INSERT INTO reports (id) VALUES (42)")


def test_an_order_that_fails_leaves_no_job(reports):
    with pytest.raises(sqlite3.IntegrityError):
        order_what_is_there(reports)
    assert reports.jobs.counts()["ready"] == 1


def test_a_late_worker_saves_nothing(reports):
    late = reports.jobs.claim()
    expire(reports)
    assert reports.jobs.work(reports.export, drain=True) == 1  # another worker takes over
    with pytest.raises(StaleOwner):
        reports.export(late, render=lambda title: "too late")
    assert content(reports) == "SALES"


def die_at_work(path):
    reports = Reports(path, lease="1s")
    with reports.jobs.claim() as job:
        reports.export(job, render=lambda title: os.kill(os.getpid(), signal.SIGKILL))


def test_a_worker_that_was_killed_is_replaced(reports):
    worker = multiprocessing.get_context("fork").Process(target=die_at_work, args=(reports.path,))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL and content(reports) is None
    expire(reports)
    assert reports.jobs.work(reports.export, drain=True) == 1
    assert content(reports) == "SALES"
