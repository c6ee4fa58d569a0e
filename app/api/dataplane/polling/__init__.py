"""The poll of a member that reads by offset: its body, its answers, its handler."""
