"""SQL through the user's own connections: one layer for guards, tables, jobs, result stores and stores.

Work in a database is a *flow*: a generator that yields statements and is sent their rows. It is written once. ``run``
drives it through a connection of the user's, whichever driver that is from, on a thread or on an event loop.

    statements       a Statement: text with its values apart; the Rows that it gives
    dialects         what differs between SQLite, PostgreSQL and MariaDB: one Dialect for each
    names            tables, columns and keys that the caller names, checked before anything is sent
    rows             one row of a table of the user's, by its key
    errors           what a driver's error becomes
    adapters         how a statement is executed on a connection of each driver; async_adapters for event loops
    connections      which adapter fits a connection
    run              drives a flow, in the caller's transaction or in one of its own
    transactions     begins and commits those: on engines, pools, and connections that autocommit

The texts of statements live with their users, such as ``guards/sql/statements.py``, and are built from a Dialect.
"""
