"""What people really wanted the lock for, made only of primitives and guards."""
