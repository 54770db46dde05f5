"""Benchmarks: peers and Leasehold side by side in one interleaved run, reported as ratios. No test asserts a time."""
