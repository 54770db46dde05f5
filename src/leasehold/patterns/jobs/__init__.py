"""Jobs: durable ownership in a table of the user's own, for work that outlives every lease.

    jobs = Jobs(engine)
    jobs.create()                                # or columns={...} for a table that you have
    jobs.enqueue({"report": 42})

    if job := jobs.claim():                      # version 1 is ours, for a minute, and prolonged inside ``with``
        with job:
            body = render(job.payload)
            with engine.begin() as tx:
                save(tx, body)
                job.complete(tx=tx)              # effect and completion are one step

Read ``flows`` first: the life of a job. ``statements`` and ``claims`` are the SQL, ``table`` checks the user's table or
creates one, ``heartbeat`` sends heartbeats, ``jobs`` and ``job`` are the public classes.
"""
