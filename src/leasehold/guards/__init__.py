"""Guards make a stale holder harmless at the resource: they refuse a fence older than one they have seen.

A lease only makes collisions rare: its holder can be paused at any moment, also between its last look at the clock
and its write. Whoever presents its fence to a guard, in the same transaction as its write and before its first
read, cannot lose or destroy anything that a later holder did.

A guard needs no lock client: it takes a lease, or a bare fence that arrived in a message. Each kind of resource
has a module of its own; ``fence`` holds the rule that they all keep.
"""
