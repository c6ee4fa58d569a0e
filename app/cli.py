"""The `curlew` command. Runs a node, and says in one sentence what is wrong.

curlew dev       a node with friendly defaults: migrates by itself, makes topics on first send
curlew serve     a production node; --migrate brings the database to this version's schema before
curlew migrate   bring the metadata database to this version's schema
curlew init      make the first API key; from then on each request needs one
curlew key       make, list and revoke API keys; curlew security open forgets all of them
curlew secret-key accept  take another secret key for the cluster's, when the one before is lost
curlew audit verify  say whether the audit is as it was written
curlew release-store  let another store use the metadata database, when its own is gone for good
curlew remove-node  take a node that is gone for good out of the replicas of its shard
curlew reset-replica  have the replica of a stopped node begin anew, and copy it from its leader
curlew openapi   print the OpenAPI document
curlew settings  print every setting, its default and its range
curlew store     look at, check, repair or fill a store (see `app.commands.store_commands`)

Nothing of a node is imported before the words are understood.
"""

import sys
from collections.abc import Sequence

from app.commands.server_words import parser_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status: 0 well, 2 cannot start."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser_of(words[0] if words else "").parse_args(words)
    from app.runtime.private_files import keep_new_files_private

    keep_new_files_private()
    if options.command == "openapi":
        from app.api.document.openapi import render_document

        sys.stdout.write(render_document())
        return 0
    if options.command == "settings":
        from app.commands.settings_page import settings_page

        sys.stdout.write(settings_page())
        return 0
    from app.commands.running import run

    return run(options)


if __name__ == "__main__":
    sys.exit(main())
