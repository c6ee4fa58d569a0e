"""All operations of the control plane as one object."""

from curlew_client.aio.admin.access import AsyncAccess
from curlew_client.aio.admin.clients import AsyncClients
from curlew_client.aio.admin.dead_letters import AsyncDeadLetters
from curlew_client.aio.admin.delayed import AsyncDelayed
from curlew_client.aio.admin.groups import AsyncGroups
from curlew_client.aio.admin.messages import AsyncMessages
from curlew_client.aio.admin.offsets import AsyncOffsets
from curlew_client.aio.admin.service import AsyncService
from curlew_client.aio.admin.topics import AsyncTopics
from curlew_client.aio.admin.transactions import AsyncTransactions


class AsyncAdmin(
    AsyncTopics,
    AsyncGroups,
    AsyncOffsets,
    AsyncMessages,
    AsyncDeadLetters,
    AsyncDelayed,
    AsyncTransactions,
    AsyncClients,
    AsyncAccess,
    AsyncService,
):
    """What an operator does: each method is the operation of its name in the HTTP API's document.

    Answers are the node's documents, typed in `curlew_client.documents`. `list_topics` and other
    lists of what is configured give all pages; lists of messages, traces and audit entries give
    one. `dry_run=True` says what would happen. `request` does any operation by its path.
    """
