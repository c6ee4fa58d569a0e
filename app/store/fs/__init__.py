"""The only calls of the operating system, and the page cache."""
