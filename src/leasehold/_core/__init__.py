"""The decisions, and nothing else: no I/O, clock, threads, asyncio or randomness.

Read in this order: ``types`` (the words), ``policy`` (the numbers), ``ops`` (what can be asked of a store), ``ledger``
with ``turn`` and ``rules`` (how a store decides), ``holding`` (what a holder may believe), ``flows`` with ``claims``,
``group`` and ``resource_flows`` (how a client behaves). ``names``, ``templates`` and ``durations`` check what users
write; ``ports`` are the shapes of what is outside.
"""
