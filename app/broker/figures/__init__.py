"""What went in and out by topic and by group: counters, and rates made of them."""
