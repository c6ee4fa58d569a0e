"""Parts of a node: what belongs to its process, and what to a term in which it leads its shard.

- `access`: who may use it. `from_config`: what it makes of its settings.
- `pulse`: its question to the database every second. `housekeeping`: other work of the process.
- `served_term`: the store and the broker of one term, with their services.
- `lone_shard`: how a node without other replicas gets its term.
- `replicated_shard`: how one with them gets its terms, from its `replica_at_work`.
  `replica_conditions`: what it tells of that replica.
"""
