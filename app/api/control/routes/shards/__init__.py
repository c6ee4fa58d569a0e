"""Routes of shards: who leads the queues of a topic, and what an operator does with shards."""
