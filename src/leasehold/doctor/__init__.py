"""The examination of a store, and the checklist before production: what ``leasehold doctor`` prints.

examination   a trial with leases, then what the servers or the file say: findings in a ``Report``
exposition    the metrics of programs, and the anti-patterns that show in them
checklist     sixteen points: pass, fail, or only you can know
"""

from leasehold.doctor.examination import Examination, examine
from leasehold.doctor.report import Finding, Report

__all__ = ["Examination", "Finding", "Report", "examine"]
