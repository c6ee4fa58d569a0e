"""Commands for what operators do to shards and their replicas."""
