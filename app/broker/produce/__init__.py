"""Sending: choice of queue, topic types, batches and atomic batches, requests with replies."""
