"""Giving a group the messages of several shards: receives, and polls of members."""
