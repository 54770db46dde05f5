"""Single flight: one rebuild in the whole fleet, and everybody gets what came of it.

page        what stands on the result store, and how long it counts
rebuilding  the protocol under the lease
joining     callers of one process share one flight
background  rebuilds that nobody waits for
single      the decorator and the call form
"""
