"""The embedded store: one SQLite file, for the processes of all who may write it on one host, no server.

store     the port: one turn of the ledger in one short transaction
database  the open file: transactions, rows, sweeping
file      opening: where it may lie, what it must be, which machine it belongs to
codec     a resource's state as text
wake      datagrams between the processes; who is gone
mailbox   where one thread or event loop receives them
machine   boot id, machine id, network file systems
ownership whose files these are: links, folders and files of other users
failures  SQLite's errors in words
"""

from leasehold.stores.sqlite.file import default_path
from leasehold.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore", "default_path"]
