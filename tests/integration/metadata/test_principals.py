"""Keys in SQL, on both engines: made once, revoked at once, never the last, never revived."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster import ClusterConfig, Metadata
from app.cluster.metadata.access.principals import Principals
from app.domain.access.accounts import ListedKey, PrincipalSettings
from app.domain.access.audit import Change
from app.domain.errors import CurlewError, InvalidRequest, PreconditionFailed, StateConflict
from app.domain.limits import ADMINISTRATOR_MS_MIN
from app.domain.positions import FlushMode, TimestampMs
from tests.support.metadata.databases import Databases, sync_engine
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio


class Open(Protocol):
    async def __call__(self) -> Metadata: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def url(databases: Databases) -> str:
    return databases.migrated()


@pytest.fixture
async def opened(url: str, clock: FakeClock) -> AsyncIterator[Open]:
    """Opens the database as another node would."""
    async with AsyncExitStack() as stack:

        async def node() -> Metadata:
            metadata = await Metadata.open(ClusterConfig(url, FlushMode.SYNC), clock)
            stack.push_async_callback(metadata.close)
            return metadata

        yield node


ADMIN = PrincipalSettings(("admin",))


async def keys_of(principals: Principals) -> list[ListedKey]:
    return [key for account in await principals.accounts() for key in account.keys]


def expiry(clock: FakeClock, after_ms: int) -> TimestampMs:
    return TimestampMs(clock.now_ms() + after_ms)


async def test_the_first_key_closes_all_nodes(opened: Open, clock: FakeClock) -> None:
    one, two = await opened(), await opened()
    before = two.principals.keyring
    assert not before.is_closed
    key = (await one.principals.make_first()).text.encode()
    await two.principals.refresh()
    assert two.principals.keyring.is_closed
    found = two.principals.keyring.find(key, clock.now_ms)
    assert found is not None
    assert found.principal == "admin"


async def test_of_two_first_keys_at_once_one_is_refused(opened: Open) -> None:
    one, two = await opened(), await opened()
    made = await asyncio.gather(
        one.principals.make_first(), two.principals.make_first(), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in made) == ["NewKey", "StateConflict"]
    assert len(await keys_of(one.principals)) == 1


async def test_a_revoked_key_is_unknown_after_a_refresh(opened: Open, clock: FakeClock) -> None:
    one, two = await opened(), await opened()
    await one.principals.make_first()
    key = (await one.principals.create("ci", ADMIN, None)).text.encode()
    await two.principals.refresh()
    assert two.principals.keyring.find(key, clock.now_ms)
    assert await one.principals.revoke("ci") == 1
    await two.principals.refresh()
    assert two.principals.keyring.find(key, clock.now_ms) is None


async def test_the_last_key_that_works_is_not_revoked(opened: Open, clock: FakeClock) -> None:
    principals = (await opened()).principals
    await principals.make_first()
    await principals.create("brief", ADMIN, expiry(clock, 1_000))
    clock.advance(ms=1_000)
    for key_id in (None, (await keys_of(principals))[0].key_id):
        with pytest.raises(StateConflict, match="no administrator"):
            await principals.revoke("admin", key_id)
    assert [each.is_live for each in await keys_of(principals)] == [True, False]
    await principals.refresh()
    assert len(principals.keyring.keys) == 2


async def test_an_administrator_whose_key_ends_soon_is_none(opened: Open, clock: FakeClock) -> None:
    principals = (await opened()).principals
    await principals.make_first()
    await principals.create("brief", ADMIN, expiry(clock, ADMINISTRATOR_MS_MIN - 1))
    with pytest.raises(StateConflict, match="for 24 hours or more"):
        await principals.revoke("admin")
    with pytest.raises(StateConflict, match="for 24 hours or more"):
        await principals.put("admin", PrincipalSettings(("viewer",)))
    await principals.create("long", ADMIN, expiry(clock, 2 * ADMINISTRATOR_MS_MIN))
    await principals.revoke("admin")
    clock.advance(ms=2 * ADMINISTRATOR_MS_MIN - 60_000)
    await principals.create(
        "ci", PrincipalSettings(("viewer",)), None
    )  # not a way out, but no loss
    await principals.create("another", ADMIN, expiry(clock, 50_000))
    with pytest.raises(StateConflict, match="for 24 hours or more"):
        await principals.revoke("long")


async def test_of_two_that_revoke_each_other_at_once_one_stays(opened: Open) -> None:
    one, two = await opened(), await opened()
    await one.principals.make_first()
    await one.principals.create("ci", ADMIN, None)
    done = await asyncio.gather(
        one.principals.revoke("ci"), two.principals.revoke("admin"), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in done) == ["StateConflict", "int"]
    assert len(await keys_of(one.principals)) == 1


async def test_of_two_nodes_that_know_the_same_keys_one_makes_another(opened: Open) -> None:
    one, two = (await opened()).principals, (await opened()).principals
    first = await one.make_first()
    known = [first.key_id]
    done = await asyncio.gather(
        one.rotate("admin", None, known_keys=known),
        two.rotate("admin", None, known_keys=known),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in done) == ["NewKey", "PreconditionFailed"]
    assert len(await keys_of(one)) == 2


async def test_keys_that_have_expired_are_known_keys(opened: Open, clock: FakeClock) -> None:
    principals = (await opened()).principals
    await principals.make_first()
    await principals.create("ci", PrincipalSettings(("viewer",)), expiry(clock, 1_000))
    clock.advance(ms=2_000)
    [expired] = (await principals.get("ci")).keys
    with pytest.raises(PreconditionFailed):
        await principals.rotate("ci", None, known_keys=[])
    await principals.rotate("ci", None, known_keys=[expired.key_id])
    assert len((await principals.get("ci")).keys) == 1


async def test_a_principal_has_two_keys_at_most(opened: Open, clock: FakeClock) -> None:
    principals = (await opened()).principals
    first = await principals.make_first()
    clock.advance(ms=1_000)
    await principals.rotate("admin", expiry(clock, 5_000))
    with pytest.raises(StateConflict) as caught:
        await principals.rotate("admin", None)
    assert first.key_id in str(caught.value.hint)
    clock.advance(ms=5_000)
    await principals.rotate("admin", None)
    assert await principals.revoke("admin", first.key_id) == 1
    assert len(await keys_of(principals)) == 1


async def test_an_older_copy_of_the_database_revives_no_key(
    opened: Open, url: str, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    node, other = await opened(), await opened()
    await other.principals.make_first()
    key = (await other.principals.create("ci", ADMIN, None)).text.encode()
    await other.principals.revoke("ci")
    await node.principals.refresh()
    engine = sync_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM principals"))
        connection.execute(text("UPDATE access_state SET version = 1, closed_ms = NULL"))
    engine.dispose()
    for _ in range(2):
        await node.principals.refresh()
    assert node.principals.keyring.is_closed
    assert node.principals.keyring.find(key, clock.now_ms) is None
    assert len(node.principals.keyring.keys) == 1
    assert caplog.text.count("older copy") == 1


async def test_a_database_holds_no_key(opened: Open, url: str) -> None:
    principals = (await opened()).principals
    secret = (await principals.make_first()).text.rpartition("_")[2]
    engine = sync_engine(url)
    with engine.connect() as connection:
        rows = [str(connection.execute(text(f"SELECT * FROM {name}")).all()) for name in TABLES]
    engine.dispose()
    assert len(rows[1]) > 20
    assert all(secret not in row for row in rows)


TABLES = ("principals", "api_keys", "access_state")


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", "a" * 128, ".", ".."])
async def test_a_name_that_cannot_be_is_refused(opened: Open, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await (await opened()).principals.create(name, ADMIN, None)


async def test_what_is_not_there_is_named(opened: Open) -> None:
    principals = (await opened()).principals
    await principals.make_first()
    with pytest.raises(CurlewError, match="no principal 'ci'"):
        await principals.revoke("ci")
    with pytest.raises(CurlewError, match="no principal 'ci'"):
        await principals.rotate("ci", None)
    with pytest.raises(CurlewError, match="no key 'x'"):
        await principals.revoke("admin", "x")
    with pytest.raises(CurlewError, match="already"):
        await principals.create("admin", ADMIN, None)


async def test_only_the_command_opens_again(opened: Open) -> None:
    node = await opened()
    await node.principals.make_first()
    await node.principals.refresh()
    assert await node.principals.open_to_anybody() == 1
    await node.principals.refresh()
    assert node.principals.keyring.is_closed, "a node that runs stays closed"
    assert not (await opened()).principals.keyring.is_closed


class Remembering:
    """An audit that may refuse."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fails = False

    async def changed(self, transaction: AsyncConnection, change: Change) -> None:
        assert transaction.in_transaction()
        if self.fails:
            raise StateConflict("no room for the audit")
        self.seen.append(f"{change.action} {change.resource}")


async def test_each_change_is_told_to_the_audit_within_its_transaction(opened: Open) -> None:
    metadata = await opened()
    audit = metadata.principals.audit = Remembering()
    key = await metadata.principals.make_first()
    assert audit.seen == ["CREATE principal:admin", f"CREATE key:admin/{key.key_id}"]
    audit.fails = True
    with pytest.raises(StateConflict, match="no room"):
        await metadata.principals.create("bob", ADMIN, None)
    assert [each.name for each in await metadata.principals.accounts()] == ["admin"]
