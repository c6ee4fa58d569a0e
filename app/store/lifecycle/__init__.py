"""Opening, recovery, checkpoints, retention, repair of units.

`retention_policy` decides when a segment goes and when a full disk refuses messages;
`retention_run` carries it out.
"""
