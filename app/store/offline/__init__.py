"""Work on a store that no node has open: look at it, check it, repair it, fill it from RocketMQ.

Called by the command line only. Everything takes a `FileSystem`; whoever changes or walks a store
holds its lock (`directory.locked`). Nothing here knows SQL, HTTP or an event loop.
"""
