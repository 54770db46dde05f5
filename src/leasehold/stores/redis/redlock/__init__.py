"""The Redlock store: a majority of independent masters decides.

store            the port
rounds           the rule, as flows: what is sent to the nodes, and what their replies mean together
quorum           what is known of the nodes, and which of them count
connection       a thread's connection to all nodes; link: its way to one of them
loop_connection  an event loop's connection to all nodes
node_server      one node: its handshake
withdrawals      what a node has not confirmed, in the background
commands         the scripts that only a Redlock sends
target           URLs and lists of clients
"""
