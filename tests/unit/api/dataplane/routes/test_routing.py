"""Every operation of the data plane leads to a handler."""

import pytest

from app.api.dataplane.routes import OPERATIONS, build_router
from app.api.http.request_context import Scope
from app.api.operations.operation import Operation
from app.domain.limits import Limits
from tests.support.nodes.brokers import running

pytestmark = pytest.mark.anyio


async def test_each_operation_has_a_handler_of_its_own() -> None:
    async with running() as world:
        router = build_router(world.broker, Limits())
        handlers = [_handler(router.find(_scope(each)), each) for each in OPERATIONS]
        assert len(set(handlers)) == len(OPERATIONS)


def _scope(operation: Operation) -> Scope:
    method, path = operation.route.split()
    path = path.replace("{queue}", "0").replace("{", "").replace("}", "")
    return {"method": method, "raw_path": path.encode(), "path": path}


def _handler(found: object, operation: Operation) -> object:
    assert isinstance(found, tuple), operation.route
    assert found[0] is operation
    return found[1]
