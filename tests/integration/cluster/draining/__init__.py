"""A shard that is drained before it is taken away."""
