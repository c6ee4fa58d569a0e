# Made from aio/admin/admin.py by make_blocking.py. Change that, and run it.
"""All operations of the control plane as one object."""

from curlew_client.blocking.admin.access import Access
from curlew_client.blocking.admin.clients import Clients
from curlew_client.blocking.admin.dead_letters import DeadLetters
from curlew_client.blocking.admin.delayed import Delayed
from curlew_client.blocking.admin.groups import Groups
from curlew_client.blocking.admin.messages import Messages
from curlew_client.blocking.admin.offsets import Offsets
from curlew_client.blocking.admin.service import Service
from curlew_client.blocking.admin.topics import Topics
from curlew_client.blocking.admin.transactions import Transactions


class Admin(
    Topics,
    Groups,
    Offsets,
    Messages,
    DeadLetters,
    Delayed,
    Transactions,
    Clients,
    Access,
    Service,
):
    """What an operator does: each method is the operation of its name in the HTTP API's document.

    Answers are the node's documents, typed in `curlew_client.documents`. `list_topics` and other
    lists of what is configured give all pages; lists of messages, traces and audit entries give
    one. `dry_run=True` says what would happen. `request` does any operation by its path.
    """
