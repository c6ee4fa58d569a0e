"""Shards: which one a new queue goes to. Pure.

Which shard has a queue is in the metadata (`TopicView.shards`); who leads a shard, in
`cluster.metadata.nodes.shards`.
"""
