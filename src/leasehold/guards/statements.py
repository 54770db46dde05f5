"""The SQL of the fence guard, for SQLite (3.24 or newer) and PostgreSQL alike.

``{table}`` is a checked name. Values are bound by name: ``:resource``, ``:fence``, ``:owner`` (a digest).

CREATE   the table: for each resource the highest fence presented, and by whom. Does nothing when it is there.
ACCEPT   the guard rule in one statement. 1 row changed: accepted; 0: refused. Accepted or refused, the row (in
         SQLite the database) stays locked until the transaction ends, so that check, read and write are one step.
SEEN     -> fence: why it was refused.
"""

from __future__ import annotations

CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    resource VARCHAR(512) NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    owner VARCHAR(32) NOT NULL
)
"""

ACCEPT = """
INSERT INTO {table} AS known (resource, fence, owner) VALUES (:resource, :fence, :owner)
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence, owner = excluded.owner
WHERE known.fence < excluded.fence OR (known.fence = excluded.fence AND known.owner = excluded.owner)
"""

SEEN = "SELECT fence FROM {table} WHERE resource = :resource"
