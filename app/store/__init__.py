"""The local durable log: synchronous, no event loop, no HTTP, no SQL."""
