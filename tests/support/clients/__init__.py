"""Clients and pages for tests: ASGI, sockets, curl, a browser."""
