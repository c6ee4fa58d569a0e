"""How the replicas of a shard agree: a state machine without clock, socket, disk or random. Pure.

`Replica.handle` takes one event and returns actions. The caller (a node, or the simulator of the
tests) carries the actions out in their order and gives back what came of them as further events.
The machine knows ends of the log and the blocks between them, never bytes. The rules R1 to R10 are
those of docs/adr/0083.

- `terms`: members, terms, promises and histories: what a replica keeps in two small files.
- `shard_row`: the row of a shard in SQL and the conditional changes of it: the only arbiter.
- `messages`: what replicas say to each other. `events`: events and actions.
- `confirmation`: which blocks every required member has; from that follows the high watermark.
- `in_sync_set`: which members are required while the row changes.
- `follower`, `candidate`, `leader`: the three roles. `replica` moves between them.
"""
