"""What proves the product: the seeded simulator of the whole protocol. Nothing in the product imports it."""
