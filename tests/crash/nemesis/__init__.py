"""Three real nodes of one shard in network namespaces, whose machine, network, disk and database
fail at random while producers and consumers go on."""
