"""Benchmarks: Leasehold beside its peers, interleaved in one run and reported as ratios. No test asserts a time.

``python -m benchmarks`` runs all parts; ``python -m benchmarks --help`` lists them. To read the code, begin with
``report/rows.py`` (what a piece of a part returns), then ``rounds.py`` (how contenders are measured side by side), then
a part. ``piece.py`` runs each piece in an interpreter of its own.
"""
