"""What is told to the outside: for now the log records of the ``leasehold`` logger."""
