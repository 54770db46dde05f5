"""Cron: one run a tick in the fleet. A tick is claimed on a result store, under a lease, before it is run.

``schedule`` computes ticks and decides what to do about those that are due, ``state`` is what is remembered of them,
``history`` reads and writes that, ``runner`` runs the ticks, and ``cron`` has the classes that users hold.
"""

from __future__ import annotations

from leasehold.patterns.cron.cron import AsyncCron, Cron
from leasehold.patterns.cron.state import Run

__all__ = ["AsyncCron", "Cron", "Run"]
