"""A success that nobody decided on is not sent: a route, a mount or a handler that asks for no
permission. Lists ask for each row."""

import pytest

from app.api.access.operation_rights import OperationRights
from tests.support.nodes.closed import closed_node

pytestmark = pytest.mark.anyio

ASKED = (
    ("GET", "/v1/topics/alpha-in", b"", ""),
    ("DELETE", "/v1/groups/alpha-g", b"", ""),
    ("GET", "/v1/topics/alpha-in/queues/0/messages", b"", "offset=0"),
    ("POST", "/v1/topics/alpha-in/messages", b"{}", ""),
    ("POST", "/v1/topics/alpha-in/groups/alpha-g/messages:receive", b"{}", ""),
    ("GET", "/v1/topics/alpha-in/stream", b"", ""),
)


@pytest.mark.parametrize(("method", "path", "body", "query"), ASKED)
async def test_what_nobody_decided_on_is_not_sent(
    method: str, path: str, body: bytes, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with closed_node() as node:
        monkeypatch.setattr(OperationRights, "require", lambda *_: None)
        answer = await node.ask("alpha", method, path, body=body, query=query)
        assert answer.status == 500
        assert b"alpha-in" not in answer.body.replace(path.encode(), b"")
