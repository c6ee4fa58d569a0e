"""Pages of those who run nodes: clients, nodes and their settings, what this program is."""
