"""The commands of the server, as the command `curlew` of `curlew-client` finds them: entry points
of the group `curlew.commands`.

Each takes the words behind its name and gives the exit status; `help` is what the list of commands
says about it. Nothing of the server is imported before one runs, so that `curlew --help` is quick.
"""

from collections.abc import Sequence
from typing import Final


class ServerCommand:
    """One of `app.cli`'s commands."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.help = text

    def __call__(self, words: Sequence[str]) -> int:
        from app.cli import main

        return main([self.name, *words])


dev: Final = ServerCommand("dev", "start a node with friendly defaults")
serve: Final = ServerCommand("serve", "start a production node")
migrate: Final = ServerCommand("migrate", "bring the metadata database to this version's schema")
init: Final = ServerCommand("init", "make the first API key; from then on each request needs one")
key: Final = ServerCommand("key", "make, list and revoke API keys in the database of a node")
security: Final = ServerCommand("security", "whether keys are needed")
secret_key: Final = ServerCommand("secret-key", "take another secret key for the cluster's")
audit: Final = ServerCommand("audit", "say whether the audit is as it was written")
release_store: Final = ServerCommand(
    "release-store", "let another store use the metadata database; stop its node before"
)
remove_node: Final = ServerCommand(
    "remove-node", "take a node that is gone for good out of the replicas of its shard"
)
reset_replica: Final = ServerCommand(
    "reset-replica", "have the replica of a stopped node begin anew"
)
store: Final = ServerCommand("store", "look at, check, repair or fill a store")
openapi: Final = ServerCommand("openapi", "print the OpenAPI document")
settings: Final = ServerCommand("settings", "print every setting with default and range")
