"""Every operation says who may use it: the program refuses to start with one that does not."""

import pytest

from app.api.control.operation_list import OPERATIONS
from app.api.control.operation_router import OperationRouter
from app.api.document.openapi import build_document
from app.api.operations.operation import Operation, OperationWithoutNeeds
from app.domain.access.actions import Action


def test_an_operation_without_needs_cannot_be_made() -> None:
    with pytest.raises(OperationWithoutNeeds, match=r"GET /v1/new .*give it needs="):
        Operation(operation_id="new", route="GET /v1/new", summary="New", needs={})


def test_nor_can_one_of_the_control_plane() -> None:
    router = OperationRouter("new")

    async def new() -> None:
        """New."""

    with pytest.raises(OperationWithoutNeeds, match="who may use it"):
        router.serve("GET /v1/new", "New", needs={})(new)


def test_the_document_shows_what_each_needs() -> None:
    paths = build_document()["paths"]
    shown = {
        operation["operationId"]: (operation["x-curlew-action"], operation.get("x-curlew-makes"))
        for methods in paths.values()
        for operation in methods.values()
    }
    declared = {
        each.operation_id: (dict(each.needs), list(each.makes) or None) for each in OPERATIONS
    }
    assert shown == declared
    assert shown["send_message"] == ({"topic": Action.PUB}, ["topic"])
    listing = paths["/v1/topics/{topic}/scheduled"]["get"]
    assert listing["x-curlew-instead"] == {"topic": Action.SUB}
    assert shown["reset_group_offsets"][0] == {"group": Action.UPDATE, "topic": Action.GET}
