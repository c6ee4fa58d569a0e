"""The Python client while its key is revoked, replaced, or has its rights taken: what is refused
has its own error, and everything else is neither lost nor doubled (G10, G21).

Control: `test_kills.py` shows that the judge sees what is lost, doubled, or stored though it was
said not to be.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.client.faults.keyed_worker import KEY_FILE
from tests.client.faults.load_worker import POLLED, WORKED
from tests.client.faults.test_kills import PRODUCERS, begin, come_to_rest_and_judge
from tests.history.events import Received, Seen, Sent
from tests.history.load import Load, running_load
from tests.integration.test_commands import curlew
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash

MODULE = "tests.client.faults.keyed_worker"
NAMES = *(f"p-{role}" for role in PRODUCERS), "worker", "poller"
ROLES = {"roles": ["producer", "consumer"]}


def closed(load: Load) -> httpx.Client:
    """Make the first key, which closes the node: an administrator with it, as the load is."""
    made = curlew("init", "--data-dir", str(load.data_dir))
    assert made.returncode == 0, made.stderr
    wait_until(lambda: httpx.get(f"{load.url}/v1/topics").status_code == 401)
    load.sign_in(made.stdout.partition("\n")[0])
    return load.http()


class Shop:
    """The principal of all that use the client."""

    def __init__(self, boss: httpx.Client, key_file: Path) -> None:
        self._boss = boss
        self._key_file = key_file
        self.may(ROLES)
        for group in (WORKED, POLLED):
            self._boss.put(f"/v1/groups/{group}", json={}).raise_for_status()
        self.key = self.take_key()

    def may(self, roles: object) -> None:
        self._boss.put("/v1/principals/shop", json=roles).raise_for_status()

    def take_key(self) -> str:
        """Make another key, and tell the programs."""
        made = self._boss.post("/v1/principals/shop/keys").raise_for_status()
        self.key = str(made.json()["key"])
        new = self._key_file.with_suffix(".new")
        new.write_text(self.key)
        new.replace(self._key_file)
        return self.key

    def revoke(self, key: str) -> None:
        key_id = key.split("_")[1]
        self._boss.delete(f"/v1/principals/shop/keys/{key_id}").raise_for_status()


def outcomes(load: Load, name: str) -> Counter[str]:
    """What a worker has done and been refused so far."""
    events = load.so_far(name)
    found = Counter(event.outcome for event in events if isinstance(event, Sent | Received))
    found["ok"] += sum(isinstance(event, Seen) for event in events)
    return found


@contextmanager
def all_get(load: Load, outcome: str, count: int = 1) -> Iterator[None]:
    """Each has that outcome so often, from before the block on."""
    before = {name: outcomes(load, name)[outcome] for name in NAMES}
    yield
    for name in NAMES:
        wait_until(lambda: outcomes(load, name)[outcome] >= before[name] + count)  # noqa: B023


def go_on(load: Load) -> None:
    with all_get(load, "ok", 20):
        pass


def test_wrong_keys_lose_and_double_nothing(tmp_path: Path) -> None:
    with running_load(tmp_path, order="concurrent") as load, closed(load) as boss:
        shop = Shop(boss, tmp_path / KEY_FILE)
        begin(load, "work", module=MODULE)
        go_on(load)
        with all_get(load, "refused"):
            shop.revoke(shop.key)
        shop.take_key()
        go_on(load)
        with all_get(load, "refused"):
            old = shop.key
            shop.take_key()
            shop.revoke(old)
        go_on(load)
        with all_get(load, "refused"):
            shop.may({"roles": []})
        shop.may(ROLES)
        go_on(load)
        late = come_to_rest_and_judge(load, "worker")
    assert late == []
