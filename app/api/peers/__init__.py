"""Connections to the cluster ports of other nodes, for relayed requests and for replicas.

`pool` keeps them and bounds them, `connection` is one of them, and `handshake` is what both sides
say before the first request.
"""
