"""`RateLimit-Policy` and `RateLimit` as draft-ietf-httpapi-ratelimit-headers-11 writes them."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

import app
from app.api.http.rate_limit_headers import near_quota_headers, quota_headers
from app.domain.quotas.quota import Quota, QuotaUnit

APP = Path(app.__file__).parent
STRING = r'"[ !#-\[\]-~]*"'
"""A String of RFC 9651 without escapes: the item's value, which names the policy."""
INTEGER = r"[0-9]{1,15}"
UNITS = {"requests", "content-bytes", "concurrent-requests"}
"""Those of the draft's registry."""
WITHOUT_UNIT = {"writer.py", "cold_reads.py", "dedup_refusals.py", "transactions.py"}
"""Their bounds are on what is remembered, or on what the machine has, for which the draft has no
unit."""


@pytest.mark.parametrize("unit", get_args(QuotaUnit))
def test_the_fields_are_lists_of_strings_with_parameters(unit: QuotaUnit) -> None:
    policy, left = quota_headers(Quota("waiting", 20_000, unit, 0))
    assert policy == (b"ratelimit-policy", f'"waiting";q=20000;qu="{unit}"'.encode())
    assert left == (b"ratelimit", b'"waiting";r=0')
    assert re.fullmatch(rf"{STRING};q={INTEGER};qu={STRING}", policy[1].decode())
    assert re.fullmatch(rf"{STRING};r={INTEGER}", left[1].decode())


def test_all_units_are_registered() -> None:
    assert set(get_args(QuotaUnit)) <= UNITS


def test_they_come_from_four_fifths_on() -> None:
    assert near_quota_headers(Quota("waiting", 100, "concurrent-requests", 21)) == []
    assert near_quota_headers(Quota("waiting", 100, "concurrent-requests", 20))


def refusals() -> list[tuple[str, dict[str, ast.expr]]]:
    """(module, arguments) of every place where a bound refuses."""
    return [
        (path.name, {each.arg: each.value for each in node.keywords if each.arg})
        for path in sorted(APP.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"TooManyRequests", "SystemBusy"}
    ]


def test_every_refusal_says_what_to_do_and_when_to_come_back() -> None:
    places = refusals()
    assert len(places) >= 9
    for module, arguments in places:
        assert {"hint", "retry_after_s"} <= set(arguments), module
        assert ("quota" in arguments) != (module in WITHOUT_UNIT), module


def test_every_bound_has_a_name_of_its_own() -> None:
    """Clients tell policies by it."""
    quotas = [arguments["quota"] for _, arguments in refusals() if "quota" in arguments]
    names = [
        quota.args[0].value
        for quota in quotas
        if isinstance(quota, ast.Call) and isinstance(quota.args[0], ast.Constant)
    ]
    assert len(names) == len(set(names)) >= 5
