"""What needs no lock at all: conditional updates, row locks and unique inserts on the user's own tables."""
