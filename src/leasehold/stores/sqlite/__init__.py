"""The embedded store: one SQLite file on one host, for the processes of all users who may write it. No server.

store       the port: one turn of the ledger in one short transaction
pending     the calls of this process that wait for the file
database    the open file: transactions, rows, sweeping, a resource's state as text
file        opening: where it may lie, what it must be, which machine and user it belongs to
sockets     datagrams between the processes, and which of those are gone
connection  where one thread or event loop receives them
failures    SQLite's errors in words
stdlib      the parts of the standard library that a short command loads
"""

from leasehold.stores.sqlite.file import default_path
from leasehold.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore", "default_path"]
