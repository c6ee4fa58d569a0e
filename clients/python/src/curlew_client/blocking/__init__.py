"""Requests over blocking sockets. `pool` and `sending` are made from those in `aio`."""
