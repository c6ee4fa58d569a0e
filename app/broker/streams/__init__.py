"""Streams of messages to a client, with credit."""
