"""Curlew's server: a message service over plain HTTP."""
