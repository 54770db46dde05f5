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

Read ``flows`` first: it says what happens to a job. ``statements`` and ``dialects`` are the SQL, ``table`` looks at
the user's table or makes one, ``heartbeat`` sends heartbeats, ``jobs`` and ``job`` are the nouns.
"""
