"""Benchmarks: Leasehold beside its peers in one interleaved run, reported as ratios. No test asserts a time."""
