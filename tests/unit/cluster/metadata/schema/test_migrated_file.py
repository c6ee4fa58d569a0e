"""The files that forked nodes of the tests begin with are those that the migrations make."""

import re
import sqlite3
from pathlib import Path

import pytest

from app.cluster import Migrated, migrate
from app.cluster.metadata.schema.migration import downgrade
from tests.support.metadata.migrated_file import copying


def content(path: Path) -> list[list[str]]:
    """Each statement that makes the file, its parts sorted and its names without quotes: a table
    that migrations make anew has columns and constraints in any order, and its name in quotes."""
    with sqlite3.connect(path) as connection:
        dumped = [each.replace('"', "") for each in connection.iterdump()]
    connection.close()
    parts = [[part.strip(" ,\t") for part in re.split("\n|, ", each)] for each in dumped]
    return [sorted(filter(None, each)) for each in parts]


class Counted:
    """The migrations, and for which databases they ran."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def __call__(self, url: str) -> Migrated:
        self.urls.append(url)
        return migrate(url)


def test_a_new_file_is_as_the_migrations_make_it(tmp_path: Path) -> None:
    counted = Counted()
    quick = copying(counted)
    done = quick(f"sqlite:///{tmp_path / 'quick.db'}")
    assert len(counted.urls) == 1  # of the template
    slow = migrate(f"sqlite:///{tmp_path / 'slow.db'}")
    assert (done.before, done.after) == (slow.before, slow.after)
    assert done.database == slow.database.replace("slow", "quick")
    assert content(tmp_path / "quick.db") == content(tmp_path / "slow.db")
    assert [each.name for each in tmp_path.iterdir() if "quick" in each.name] == ["quick.db"]


@pytest.mark.parametrize("schema", ["base", "0012"])
def test_a_file_that_is_there_is_migrated(tmp_path: Path, schema: str) -> None:
    url = f"sqlite:///{tmp_path / 'found.db'}"
    migrate(url)
    downgrade(url, schema)
    counted = Counted()
    done = copying(counted)(url)
    assert counted.urls[-1] == url
    fresh = migrate(f"sqlite:///{tmp_path / 'fresh.db'}")
    assert done.after == fresh.after
    assert sorted(content(tmp_path / "found.db")) == sorted(content(tmp_path / "fresh.db"))


def test_where_no_file_can_be_made_the_migrations_say_why(tmp_path: Path) -> None:
    counted = Counted()
    quick = copying(counted)
    with pytest.raises(Exception, match="metadata"):
        quick(f"sqlite:///{tmp_path / 'none' / 'x.db'}")
    assert len(counted.urls) == 2
