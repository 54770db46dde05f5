"""ZooKeeper as a server that keeps records (``stores.record``). kazoo carries the session.

server     what a turn requests
rounds     work in rounds of requests, on a thread or an event loop
looks      reading records, their queues, and lists of them
changes    changing records: one transaction
revisions  what a change is conditional on
watches    calls back when a record or a place is no longer what it was
news       texts for whoever listens at an address
tree       the nodes that must be there, and whose they are
names      how nodes are named
session    the session of this process
client     kazoo's client as we use it
calls      requests as kazoo sends them, each at most once
target     what connect was given: a URL with its options, or a client
failures   errors of the server and of the network, as errors of ours
"""
