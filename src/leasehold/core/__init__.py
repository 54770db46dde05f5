"""The decisions, and nothing else: no I/O, clock, threads, asyncio or randomness.

Read in this order: ``types`` (the words), ``policy`` (the numbers), ``ops`` (what can be asked of a store),
``ledger`` (how a store decides), ``holding`` (what a holder may believe), ``flows`` (how a client behaves).
"""
