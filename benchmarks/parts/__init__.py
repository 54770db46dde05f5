"""The parts of the benchmark: each is a function that takes a Setup and returns a Result."""
