"""Cron: one run a tick in the fleet. A tick is claimed on a shelf, under a lease, before it is run.

``schedule`` says when ticks are, ``plan`` what to do about those that are due, ``lines`` what is remembered of them,
``books`` writes that down, and ``cron`` is what people hold.
"""

from __future__ import annotations

from leasehold.patterns.cron.cron import AsyncCron, Cron
from leasehold.patterns.cron.state import Run

__all__ = ["AsyncCron", "Cron", "Run"]
