"""What happened, for those who watch: ``events`` (typed, for observers), ``log`` (the standard library's logging), and
observers that come with Leasehold. Hand them to ``connect(..., observers=[...])``."""
