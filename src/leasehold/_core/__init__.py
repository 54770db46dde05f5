"""The decisions, and nothing else: no I/O, clock, threads, asyncio or randomness.

Read in this order: ``types`` (the words), ``policy`` (the numbers), ``ops`` (what can be asked of a store), ``ledger``
with ``turn``, ``records`` and ``rules`` (how a store decides), ``holding`` with ``taken``, ``handover`` and ``changes``
(what a holder may believe), ``flows`` with ``line``, ``several`` and ``watching`` (how a client behaves). ``names``,
``templates``, ``bucket`` and ``durations`` check what users write; ``ports`` are the shapes of what is outside.
"""
