"""The command `curlew`."""
