"""Requests over asyncio. `pool` and `sending` are the source of those in `blocking`."""
