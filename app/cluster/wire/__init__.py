"""The form in bytes of what replicas say to each other (`app.cluster.replication.messages`)."""
