"""A connection of kombu to the node of the tests, and names of a test's own."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from curlew_client.testing import TestNode

from tests.client.celery.brokers import connected


@pytest.fixture
def broker(curlew_node: TestNode) -> Iterator[Any]:
    with connected(curlew_node.url) as connection:
        yield connection


@pytest.fixture
def name() -> str:
    return f"q{uuid.uuid4().hex[:12]}"
