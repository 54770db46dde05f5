"""Advice: which coordination fits a need, and why; and how long a lease should be. Pure: nothing is asked or read here.

Read in this order: ``need`` (the answers), ``questions`` (how they are asked), ``rules`` (what the answers
mean, and the table that decides), ``decision`` and ``verdict`` (what is said about it), ``cases`` (six that everybody
knows). ``ttl`` and ``samples`` are the arithmetic of leases.
"""

from __future__ import annotations

from leasehold.advice.cases import CASES
from leasehold.advice.decision import advise
from leasehold.advice.need import Need
from leasehold.advice.samples import Measured, measured
from leasehold.advice.ttl import TtlAdvice, ttl_for
from leasehold.advice.verdict import Reach, Verdict

__all__ = ["CASES", "Measured", "Need", "Reach", "TtlAdvice", "Verdict", "advise", "measured", "ttl_for"]
