"""The store on PostgreSQL: lease rows, decided by the ledger, on the server's clock.

store       the port
turns       an op as requests: one statement where that is enough, else a turn of the ledger in one transaction
statements  their texts
transactions  those of others, over the store's sessions
rows        a resource as a row
target      URLs, pools and engines; where the server is
urls        a URL as parameters of libpq, checked
schema      the table: its DDL, its version, and whether it is ours
sessions    the idle connections, for threads and event loops
session     one connection, and one request at a time on it
listener    the connection that hears of grants
pushes      notifications, and the addresses that they go to
failures    errors of the server and of the network, as errors of ours
"""
