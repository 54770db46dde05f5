"""The store on PostgreSQL: lease rows, decided by the ledger, on the server's clock.

store         the port
turns         an op as requests: one statement where that is enough, else a turn of the ledger in one transaction
statements    their texts
transactions  those of others, over the store's sessions
rows          a resource as a row
target        what connect was given: a URL with its options, a pool, an engine
sources       how to get a connection from each of these
urls          a URL as parameters of libpq, checked
schema        the table: its DDL, its version, and whether it is ours
batches       claims, beats and withdrawals of one process, gathered
sessions      the idle connections, for threads and event loops
connect       a connection that is open in time, or not at all
session       one connection, and one request at a time on it
listener      the connection that hears of grants
pushes        notifications, and the addresses that they go to
failures      errors of the server and of the network, as errors of ours
"""
