"""The batch frame of the wire, and checksums over many records."""
