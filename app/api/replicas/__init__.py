"""Connections on which replicas of a shard speak to each other, over the cluster port.

`link` is one connection, the same on both sides; `link_table` has those that came from other nodes,
one for each node; `dialing` makes one to another node. What is said is `app.cluster.wire`.
"""
