"""Eight workers export reports while they are frozen and killed: how many of their late writes get through?

app       the application: its tables, and the guarded steps of an export. Read this one first
worker    the loop of a worker, and what it does about each error
judge     counts stale writes and lost updates in what was committed; it knows nothing of guards
chaos     the worker processes, and the code that freezes and kills them
servers   a Redis and a PostgreSQL for the run, where none are given
"""
