# Made from aio/admin/dead_letters.py by make_blocking.py. Change that, and run it.
"""Dead letters: what failed too often."""

from typing import Unpack

from curlew_client.blocking.admin.asking import Asking
from curlew_client.documents.dead_letters import (
    DeadLetterList,
    DeadLetterSummary,
    LettersToPurge,
    LettersToRedrive,
    PurgeAnswer,
    RedrivePlan,
)
from curlew_client.documents.service import Operation
from curlew_client.wire.http1 import path_part as part


class DeadLetters(Asking):
    """Dead letters: what failed too often."""

    def list_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        filter: str | None = None,
        reason: str | None = None,
        from_ms: int | None = None,
        until_ms: int | None = None,
        cursor: str | None = None,
        body: str | None = None,
        page_size: int | None = None,
    ) -> DeadLetterList:
        """Browse the dead letters of a group."""
        return self._ask(
            DeadLetterList,
            "GET",
            f"/v1/groups/{part(group)}/dlq/messages",
            params={
                "topic": topic,
                "filter": filter,
                "reason": reason,
                "from_ms": from_ms,
                "until_ms": until_ms,
                "cursor": cursor,
                "body": body,
                "page_size": page_size,
            },
        )

    def get_dead_letters(self, group: str) -> DeadLetterSummary:
        """How many dead letters a group has."""
        return self._ask(DeadLetterSummary, "GET", f"/v1/groups/{part(group)}/dlq")

    def purge_dead_letters(
        self, group: str, *, dry_run: bool = False, **settings: Unpack[LettersToPurge]
    ) -> PurgeAnswer:
        """Remove dead letters for ever."""
        return self._ask(
            PurgeAnswer,
            "POST",
            f"/v1/groups/{part(group)}/dlq/messages:purge",
            params={"dry_run": dry_run},
            json=settings,
        )

    def redrive_dead_letters(self, group: str, **settings: Unpack[LettersToRedrive]) -> Operation:
        """Deliver dead letters again; ask `get_operation` how far it is."""
        return self._ask(
            Operation, "POST", f"/v1/groups/{part(group)}/dlq/messages:redrive", json=settings
        )

    def plan_redrive(self, group: str, **settings: Unpack[LettersToRedrive]) -> RedrivePlan:
        """Which dead letters would be delivered again, and where to."""
        return self._ask(
            RedrivePlan,
            "POST",
            f"/v1/groups/{part(group)}/dlq/messages:redrive",
            params={"dry_run": True},
            json=settings,
        )
