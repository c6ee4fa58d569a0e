"""What each operation is aimed at: the shard whose node has to do it. Pure; moves no bytes.

An `Operation` says it as `aim`, next to its handler; without one it is done by the node that was
asked. `api.relay` asks in one place, behind authorization and before the handler, and carries the
request to the node that leads the shard, as it came.

An `Aim` has two parts. `head` decides by path, query and headers, and may answer `BODY`: then the
body is read, given to `body`, and given back to whoever reads it next, the handler here or the node
there. Both are given the request, the names of its path as they are stored, and `Places`. They
answer the name of a shard, or `HERE`. What is not valid they leave to the handler: `HERE`.

An operation that is of several shards has no aim for all of it. It says as `across` how it is done
over them, and `api.relay.over_shards` asks each shard for its part by `Relay.call`.

- `aim`: the types. `places`: which shard has what.
- `of_sends`, `of_names`: aims of operations.
- `across`: what is of several shards; `merges`: one document of those of several shards;
  `body_parts`: bodies in parts.
"""
