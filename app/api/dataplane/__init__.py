"""The hot operations (send, batch, pull, receive, settle) without a framework in the way."""
