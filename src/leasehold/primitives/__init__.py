"""The objects that users hold: locks, leases, semaphores, elections. Both flavours of one are in one file."""
