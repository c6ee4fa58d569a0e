"""Which part of the service a test's time is counted for."""

from pathlib import Path

import pytest

from tests.support.time_by_part import MINUTES, PART_OF, part_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("tests/integration/cluster/faults/test_x.py", "shards"),
        ("tests/integration/replica/test_failover.py", "replicas"),
        ("tests/property/test_access_model.py", "security"),
        ("tests/property/test_store_model.py", "house"),
        ("spark_connector/tests/test_spark.py", "house"),
    ],
)
def test_a_file_belongs_to_the_part_of_its_folder(path: str, part: str) -> None:
    assert part_of(path) == part


def test_every_folder_that_is_named_is_there_and_every_part_has_a_bound() -> None:
    assert [folder for folder in PART_OF if not (ROOT / folder).exists()] == []
    assert set(PART_OF.values()) | {"house"} == set(MINUTES)
