"""One replica of a shard, carried out: the machine of `app.cluster.replication` over a store's log.

Run by nodes whose shard has several replicas.

- `ports`: what it needs of the connections, the database and the node.
- `kept_terms`: promise and history as values of the machine and as documents of the small files.
- `outgoing`: the blocks that a leader has still to send.
- `driver`: carries the machine's actions out, in their order.
- `leadership`: the store of one term, on the event loop. `owner`: the directory, followed and led.
- `runner`: the driver on a thread of its own, between connections, database and node.
- `replica_status`: a look at it.
"""
