"""How a quota is told to clients. Pure; for refusals, and for answers when a bound is near."""

from app.api.http.memory_budget import is_near
from app.domain.errors import Quota


def quota_headers(quota: Quota) -> list[tuple[bytes, bytes]]:
    """`RateLimit-Policy` and `RateLimit` as in draft-ietf-httpapi-ratelimit-headers-11.

    Our quotas are on what is in flight at a time, so there is no window and no time of reset.
    """
    policy = f'"{quota.name}";q={quota.limit};qu="{quota.unit}"'
    return [
        (b"ratelimit-policy", policy.encode("ascii")),
        (b"ratelimit", f'"{quota.name}";r={quota.left}'.encode("ascii")),
    ]


def near_quota_headers(quota: Quota) -> list[tuple[bytes, bytes]]:
    """`quota_headers` when most of the quota is used, else none."""
    return quota_headers(quota) if is_near(quota.limit - quota.left, quota.limit) else []
