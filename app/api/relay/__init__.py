"""Carrying requests to the node that leads the shard that they are aimed at (`api.aims`).

`relay.Relay` decides in one place and carries a request as it came, streaming both ways. `envelope`
is what travels with it: who asks, and how new the sender's metadata is. `peers` keeps connections
to the cluster ports of other nodes; `handshake` is what both sides say before the first request.

What is of several shards `over_shards` answers, by `fan_out`: each shard is asked for its part,
which is a call (`calls`).
"""
