"""A client generated from the committed document sends and receives against a real node.

The generated code goes to a temporary directory and is thrown away.
"""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.node import run_node

DOCUMENT = Path(__file__).parents[2] / "openapi" / "openapi.json"
PACKAGE = "generated_curlew"


class Generated:
    """The generated package; modules by their path in it."""

    def __getitem__(self, path: str) -> ModuleType:
        return importlib.import_module(f"{PACKAGE}.{path}")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    directory = tmp_path_factory.mktemp("generated")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--path", str(DOCUMENT), "--output-path", str(directory / PACKAGE)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    sys.path.insert(0, str(directory))
    try:
        yield Generated()
    finally:
        sys.path.remove(str(directory))
        for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
            del sys.modules[name]


def test_it_sends_receives_and_settles(generated: Generated, tmp_path: Path) -> None:
    models, types = generated["models"], generated["types"]
    api = "api.messages"
    with (
        run_node(tmp_path / "data") as node,
        generated["client"].Client(base_url=node.url) as client,
    ):
        topic = generated["api.topics.put_topic"].sync(
            "orders", client=client, body=models.TopicBody(queues=1)
        )
        assert (topic.name, topic.queues) == ("orders", 1)

        raw = types.File(payload=bytes(range(256)))
        sent = generated[f"{api}.send_message"].sync("orders", client=client, body=raw, tag="bytes")
        assert isinstance(sent, models.SendAnswer)
        envelope = models.Envelope(body={"id": 17}, keys=["order-17"])
        generated[f"{api}.send_message"].sync("orders", client=client, body=envelope)
        entries = [models.BatchEntry(text="a", id="1"), models.BatchEntry(text="b", queue_id=9)]
        batch = generated[f"{api}.send_batch"].sync(
            "orders", client=client, body=models.BatchRequest(messages=entries)
        )
        assert [each.status for each in batch.results] == [201, 404]
        assert batch.results[1].error.code == "QUEUE_NOT_FOUND"

        pulled = generated[f"{api}.pull_messages"].sync("orders", 0, client=client, offset=0)
        assert pulled.messages[0].message_id == sent.message_id
        assert pulled.messages[0].tag == "bytes"
        assert pulled.messages[1].body == {"id": 17}
        assert pulled.messages[1].keys == ["order-17"]

        received = generated[f"{api}.receive_messages"].sync(
            "orders", "billing", client=client, body=models.ReceiveBody(max_messages=10)
        )
        assert len(received.messages) == 3
        handles = [message.receipt_handle for message in received.messages]
        settled = generated[f"{api}.ack_messages"].sync(
            "orders", "billing", client=client, body=models.AckBody(receipt_handles=handles)
        )
        assert (settled.succeeded, settled.failed) == (3, 0)

        problem = generated["api.topics.get_topic"].sync("ordres", client=client)
        assert isinstance(problem, models.Problem)
        assert (problem.code, problem.hint) == ("TOPIC_NOT_FOUND", "did you mean 'orders'?")
        assert problem.retryable is False
