"""The former place of ``Conflict``; import it from ``leasehold.guards.guard``."""

from leasehold.guards.guard import Conflict as Conflict  # noqa: PLC0414  # for guards.sql, patterns.tables, jobs and results
