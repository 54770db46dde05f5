"""Single flight: one rebuild of a value in the whole fleet, whose outcome all callers get.

cached_value   what is on the result store, and how long it counts
rebuild        the protocol under the lease
flights        callers of one process that share one rebuild
background     rebuilds that no caller waits for
single_flight  the decorator and the call form
"""
