"""Advice: which coordination fits a need, and why; and how long a lease should be. Pure: it prints and reads nothing.

Read in this order: ``need`` (the answers, and six well-known cases), ``questions`` (their wording), ``rules`` (what the
answers mean, and the table that decides), ``decision`` and ``verdict`` (the result and its reasons). ``ttl`` and
``samples`` are the arithmetic of leases. ``guarantees`` shows what each store promises as Markdown.
"""

from __future__ import annotations

from leasehold.advice.decision import advise
from leasehold.advice.need import CASES, Need
from leasehold.advice.samples import Measured, measured
from leasehold.advice.ttl import TtlAdvice, ttl_for
from leasehold.advice.verdict import Reach, Verdict

__all__ = ["CASES", "Measured", "Need", "Reach", "TtlAdvice", "Verdict", "advise", "measured", "ttl_for"]
