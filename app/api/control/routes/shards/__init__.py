"""Routes of shards: what an operator does with their replicas."""
