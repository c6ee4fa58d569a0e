"""Reading without leases: pulls, browsing, ends of topics, long polls."""
