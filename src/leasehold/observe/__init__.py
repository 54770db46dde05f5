"""What happens to leases, reported: ``events`` (plain data, for observers), ``log`` (the standard library's logging),
and the observers that come with Leasehold. Pass observers to ``connect(..., observers=[...])``."""
