"""The API Security Top 10 of 2023, each class attacked over HTTP, by three teams that share a lone
node, and a cluster of three shards through all of its nodes."""
