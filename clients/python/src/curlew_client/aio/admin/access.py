"""Principals and their keys, roles, policies, and the audit."""

from typing import Literal, Unpack

from curlew_client.aio.admin.asking import AsyncAsking
from curlew_client.documents.access import (
    Audit,
    DeletedKey,
    KeySettings,
    NewKey,
    Policy,
    PolicyChange,
    PolicySettings,
    Principal,
    PrincipalChange,
    PrincipalSettings,
    RoleList,
    WhoAmI,
)
from curlew_client.wire.http1 import path_part as part


class AsyncAccess(AsyncAsking):
    """Principals and their keys, roles, policies, and the audit."""

    async def list_policies(self, *, prefix: str | None = None) -> list[Policy]:
        """List policies."""
        return await self._all(Policy, "/v1/policies", "policies", prefix=prefix)

    async def list_principals(self, *, prefix: str | None = None) -> list[Principal]:
        """List principals."""
        return await self._all(Principal, "/v1/principals", "principals", prefix=prefix)

    async def list_roles(self) -> RoleList:
        """The roles that are there, and what each allows."""
        return await self._ask(RoleList, "GET", "/v1/roles")

    async def get_audit(
        self,
        *,
        since_ms: int | None = None,
        principal: str | None = None,
        action: str | None = None,
        resource: str | None = None,
        direction: Literal["forward", "backward"] | None = None,
        page_token: str | None = None,
        page_size: int | None = None,
    ) -> Audit:
        """Who changed what, and whom it was denied; `backward`: the newest first."""
        return await self._ask(
            Audit,
            "GET",
            "/v1/audit",
            params={
                "since_ms": since_ms,
                "principal": principal,
                "action": action,
                "resource": resource,
                "direction": direction,
                "page_token": page_token,
                "page_size": page_size,
            },
        )

    async def get_policy(self, name: str) -> Policy:
        """Read a policy."""
        return await self._ask(Policy, "GET", f"/v1/policies/{part(name)}")

    async def get_principal(self, name: str) -> Principal:
        """Read a principal."""
        return await self._ask(Principal, "GET", f"/v1/principals/{part(name)}")

    async def get_whoami(
        self,
        *,
        action: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        producer: str | None = None,
        principal: str | None = None,
    ) -> WhoAmI:
        """Who the caller is, and whether it may do something; an administrator asks about another
        `principal`."""
        return await self._ask(
            WhoAmI,
            "GET",
            "/v1/whoami",
            params={
                "action": action,
                "topic": topic,
                "group": group,
                "producer": producer,
                "principal": principal,
            },
        )

    async def put_policy(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[PolicySettings],
    ) -> PolicyChange:
        """Make a policy, or replace it."""
        return await self._ask(
            PolicyChange,
            "PUT",
            f"/v1/policies/{part(name)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def put_principal(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
        **settings: Unpack[PrincipalSettings],
    ) -> PrincipalChange:
        """Make a principal, or say what it may."""
        return await self._ask(
            PrincipalChange,
            "PUT",
            f"/v1/principals/{part(name)}",
            params={"dry_run": dry_run},
            json=settings,
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def delete_policy(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> PolicyChange:
        """Take a policy away."""
        return await self._ask(
            PolicyChange,
            "DELETE",
            f"/v1/policies/{part(name)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def delete_principal(
        self,
        name: str,
        *,
        dry_run: bool = False,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> PrincipalChange:
        """Take a principal away, with all its keys."""
        return await self._ask(
            PrincipalChange,
            "DELETE",
            f"/v1/principals/{part(name)}",
            params={"dry_run": dry_run},
            if_match=if_match,
            if_none_match=if_none_match,
        )

    async def make_key(self, name: str, **settings: Unpack[KeySettings]) -> NewKey:
        """Make an API key; its secret is shown this once."""
        return await self._ask(NewKey, "POST", f"/v1/principals/{part(name)}/keys", json=settings)

    async def revoke_key(self, name: str, key_id: str, *, dry_run: bool = False) -> DeletedKey:
        """Revoke an API key."""
        return await self._ask(
            DeletedKey,
            "DELETE",
            f"/v1/principals/{part(name)}/keys/{part(key_id)}",
            params={"dry_run": dry_run},
        )
