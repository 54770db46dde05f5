"""The decisions, and nothing else: no I/O, clock, threads, asyncio or randomness.

Read in this order:

1. ``types`` (the records of a resource) and ``policy`` (the numbers);
2. ``ops`` (the requests to a store, and its replies);
3. ``ledger`` with ``turn`` and ``rules`` (how a store decides), and ``plain`` (the same for the usual case, quickly);
4. ``holding`` (what a holder may believe) and ``renewals`` (many of them at once);
5. ``flows`` with ``claims``, ``group`` and ``resource_flows`` (how a client behaves), and ``driver`` (runs a flow).

``names``, ``templates`` and ``durations`` check what users write; ``tickets`` and ``headers`` are texts that carry a
lease or its fence elsewhere; ``guarantee_table`` and ``guarantees`` state what each store promises when something goes
wrong; ``ports`` are the interfaces of what is outside; ``light_typing`` is ``typing`` for a fast
start.
"""
