"""Commands that send, read and find messages."""
