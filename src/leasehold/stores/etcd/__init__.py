"""Records in etcd, over its JSON gateway.

server        what a turn requests, carried out
transactions  requests as transactions in JSON, and replies out of theirs
keys          where things are kept
gateway       requests to whichever member answers: failover, login, what became of a request
lease         that of this process, which orders and cleans up its places
watches       what is watched
streams       the streams of events, and the thread that reads them
pool          the idle connections
connection    one connection, for threads and event loops alike
http          HTTP/1.1: a request as bytes, a reply out of bytes
urls          a URL, checked
wall          the server's wall clock
failures      errors of etcd and of the network, as errors of ours
"""
