"""Cron: one run a tick in the fleet. A tick is claimed on a result store, under a lease, before it is run.

``schedule`` says when ticks are and what to do about those that are due, ``state`` what is remembered of them,
``history`` writes that down, ``runner`` runs them, and ``cron`` is what people hold.
"""

from __future__ import annotations

from leasehold.patterns.cron.cron import AsyncCron, Cron
from leasehold.patterns.cron.state import Run

__all__ = ["AsyncCron", "Cron", "Run"]
