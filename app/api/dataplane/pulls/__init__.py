"""Pulls: messages of one queue from an offset on, and who may answer them."""
