"""Carrying requests to the node that leads the shard that they are aimed at (`api.aims`).

`relay.Relay` decides in one place; `carrier` carries a request as it came, streaming both ways, and
`shard_calls` asks for a part of one. `leaders` finds the nodes that lead shards, over the
connections of `api.peers`. `envelope` is what travels with a request: who asks, and how new the
sender's metadata is.

What is of several shards `over_shards` answers, by `fan_out`: each shard is asked for its part,
which is a call (`calls`).
"""
