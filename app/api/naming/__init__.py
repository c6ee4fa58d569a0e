"""Names of a request's namespace: stored names on the way in, the client's on the way out."""
