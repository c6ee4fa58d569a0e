"""Process plumbing that knows no messaging: services and the real clock."""
