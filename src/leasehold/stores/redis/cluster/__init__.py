"""The store over a Redis Cluster: each resource lives in one slot, and each slot on one node.

store             the port
nodes             which node has which slot, and the settings of all nodes
routing           to which node an op is sent, and what a redirection means
connection        a thread's connections to the nodes
loop_connection   an event loop's connections to the nodes
batch             the commands of one round of renewals, by node
watchdog          the watchdog's: renewals by node, pushes for holders from every node
"""
