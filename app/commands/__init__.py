"""The commands of the server: what `curlew` does with a node on this machine and its files."""
