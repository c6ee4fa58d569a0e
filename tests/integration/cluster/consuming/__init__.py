"""What consumers ask of several shards through one node."""
