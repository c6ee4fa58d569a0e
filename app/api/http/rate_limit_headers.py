"""How a quota is told to clients. Pure; for refusals, and for answers when a bound is near."""

from app.api.http.memory_budget import is_near
from app.domain.quotas.quota import Quota


def quota_headers(quota: Quota) -> list[tuple[bytes, bytes]]:
    """`RateLimit-Policy` and `RateLimit` as in draft-ietf-httpapi-ratelimit-headers-11.

    Quotas on what is in flight at a time have no window; those on rates have one.
    """
    window = "" if quota.window_s is None else f";w={quota.window_s}"
    policy = f'"{quota.name}";q={quota.limit};qu="{quota.unit}"{window}'
    reset = "" if quota.reset_s is None else f";t={quota.reset_s}"
    left = f'"{quota.name}";r={quota.left}{reset}'
    return [(b"ratelimit-policy", policy.encode("ascii")), (b"ratelimit", left.encode("ascii"))]


def near_quota_headers(quota: Quota) -> list[tuple[bytes, bytes]]:
    """`quota_headers` when most of the quota is used, else none."""
    return quota_headers(quota) if is_near(quota.limit - quota.left, quota.limit) else []
