"""What needs no lock at all: conditional updates, row locks, unique inserts and advisory locks."""
