"""Nothing is served that is not in the list of operations, and each says what it needs."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount, Route

from app.api.app_factory import build_api
from app.api.control.operation_list import OPERATIONS
from app.api.gateway import Gateway
from app.api.operations.operation import Operation
from app.api.ports import Metadata
from app.broker import Broker
from app.domain.limits import Limits

PAGES = {"/", "/openapi.json", "/docs", "/docs/static/{name}", "/ui"}
"""What is served and is no operation."""

NAMED = {"topic": "topic", "group": "group", "producer": "producer", "producer_group": "producer"}
"""Names in a path, and what they name."""


async def nothing(*_: object) -> None:
    """A page."""


@pytest.fixture
def gateway() -> Gateway:
    return build_api(
        cast("Broker", SimpleNamespace(members=None, made_by_use=None)),
        cast("Metadata", None),
        Limits(),
        local_only=True,
        web=nothing,
    )


def served(routes: list[BaseRoute]) -> Iterator[tuple[str, str | None]]:
    """Method and path of every route below `routes`, and the id of its operation."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from served(inner.routes)
        elif isinstance(route, Mount):
            yield f"* {route.path}", None
        else:
            assert isinstance(route, Route)
            operation_id = route.operation_id if isinstance(route, APIRoute) else None
            for method in route.methods or ():
                yield f"{method} {route.path}", operation_id


def test_nothing_is_served_that_is_not_in_the_list(gateway: Gateway) -> None:
    control_plane = cast("FastAPI", gateway._fallback)
    found = set(served(control_plane.routes))
    found |= {(each.route, each.operation_id) for each in gateway._router.operations}
    listed = {(each.route, each.operation_id) for each in OPERATIONS}
    assert len(listed) == len(OPERATIONS) == 133
    assert listed <= found
    assert {route.partition(" ")[2] for route, _ in found - listed} == PAGES


def test_routes_and_ids_are_given_once() -> None:
    assert len({each.route for each in OPERATIONS}) == len(OPERATIONS)
    assert len({each.operation_id for each in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.operation_id)
def test_each_has_an_action_on_what_its_path_names(operation: Operation) -> None:
    assert operation.needs
    named = {NAMED[name] for name in operation.names if name in NAMED}
    assert named <= operation.needs.keys()
    assert set(operation.makes) <= operation.needs.keys()
    reads = operation.method in {"GET", "HEAD"} and not operation.leases_by_get
    changes = {"CREATE", "UPDATE", "DELETE"} & set(operation.needs.values())
    assert not (reads and changes)
