"""`make bench`: Curlew beside the ceilings of this machine, in the same run.

Absolute figures move from machine to machine and from hour to hour, so every row has a baseline
that is measured next to it, and the target is a ratio. Nothing here is asserted.
"""
