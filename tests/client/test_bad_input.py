"""What is wrong before any node is asked: the right kind of error, with the right name."""

import os
import pickle
import signal
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from curlew_client import AsyncClient, Client, ClientClosed, CurlewError, Message, Options
from curlew_client.errors import ConnectionFailed
from curlew_client.face import MessageOptions
from curlew_client.options import node_of, nodes_of
from curlew_client.other_names import CALLS, OPTIONS
from curlew_client.producing.batches import Batches
from curlew_client.producing.messages import Waiting
from curlew_client.wire.durations import seconds_of

NOWHERE = "http://127.0.0.1:9"


def refused(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize(
    ("kind", "words", "options"),
    [
        (TypeError, "no option 'retrys'; did you mean 'retries'", {"retrys": 1}),
        (TypeError, "retries is an int", {"retries": "2"}),
        (ValueError, "retries is -1", {"retries": -1}),
        (ValueError, "connections is 0", {"connections": 0}),
        (ValueError, "timeout is '5 seconds'; write it as", {"timeout": "5 seconds"}),
        (TypeError, "timeout is seconds", {"timeout": True}),
        (TypeError, "idempotent is True or False", {"idempotent": 1}),
        (TypeError, "tls is an ssl.SSLContext", {"tls": True}),
    ],
)
def test_options(kind: type[Exception], words: str, options: dict[str, object]) -> None:
    refused(kind, words, lambda: Options.of(options))
    refused(kind, words, lambda: Client(NOWHERE, **options))


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (TypeError, "a body is bytes, str .* not list", {"body": [1]}),
        (TypeError, "no 'tags'; did you mean 'tag'", {"tags": "a"}),
        (TypeError, "no 'DelaySeconds'; here it is delay", {"DelaySeconds": 5}),
        (TypeError, r"no 'key'; here it is keys \(to find it by\) or sharding_key", {"key": "k"}),
        (TypeError, "no 'message_group_id'; here it is sharding_key", {"message_group_id": "k"}),
        (TypeError, "keys is a list of str", {"keys": "order-17"}),
        (TypeError, "keys has a int", {"keys": [17]}),
        (ValueError, "keys has 'a b'", {"keys": ["a b"]}),
        (TypeError, "queue_id is an int", {"queue_id": "1"}),
        (ValueError, "queue_id is -1", {"queue_id": -1}),
        (TypeError, "tag is a str", {"tag": 5}),
        (ValueError, "tag is empty", {"tag": ""}),
        (TypeError, "properties has 'a': 1", {"properties": {"a": 1}}),
        (TypeError, "properties is a dict", {"properties": "a=1"}),
        (ValueError, "delay or deliver_at_ms", {"delay": 1, "deliver_at_ms": 5}),
        (ValueError, "levels are level:1 to level:18", {"delay": "level:0"}),
        (ValueError, "levels are level:1 to level:18", {"delay": "level:19"}),
        (ValueError, "levels are level:1 to level:18", {"delay": "level:\u0663"}),
        (ValueError, "levels are level:1 to level:18", {"delay": "level:01"}),
        (ValueError, "levels are level:1 to level:18", {"delay": "level:3\n"}),
        (ValueError, "content_type is", {"content_type": "a\r\nX: 1"}),
        (TypeError, "timeout is seconds", {"timeout": [1]}),
    ],
)
def test_messages(kind: type[Exception], words: str, message: dict[str, object]) -> None:
    given = {"body": b"x", **message}
    with Client(NOWHERE) as curlew:
        refused(kind, words, lambda: curlew.send("orders", **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("level", range(1, 19))
def test_a_delay_level_is_said_as_it_is(level: int) -> None:
    assert Message(b"x", delay=f"level:{level}").delay == f"level:{level}"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("produce", "'produce'; here it is send"),
        ("send_message", "here it is send"),
        ("sendMessage", "here it is send"),
        ("subscribe", "here it is pull_consumer"),
        ("receive_message", "here it is receive"),
        ("recieve", "did you mean 'receive'"),
        ("xyz", "has no attribute 'xyz'$"),
    ],
)
def test_calls_of_other_clients(kind: type[Client | AsyncClient], name: str, words: str) -> None:
    refused(AttributeError, words, lambda: getattr(kind(NOWHERE), name))


def test_what_is_named_for_another_client_is_there() -> None:
    client = Client(NOWHERE)
    assert all(hasattr(client, name.split()[-1]) for name in CALLS.values() if " " not in name)
    assert {name.split()[0] for name in OPTIONS.values()} <= {*MessageOptions.__annotations__}


def test_names_and_batches() -> None:
    with Client(NOWHERE) as curlew:
        refused(TypeError, "topic is a str", lambda: curlew.send(5, b"x"))  # type: ignore[arg-type]
        refused(ValueError, "topic is empty", lambda: curlew.send("", b"x"))
        refused(ValueError, "messages has 0 messages", lambda: curlew.send_batch("orders", []))
        refused(TypeError, "messages is a list", lambda: curlew.send_batch("orders", "ab"))
        two = [Message(b"x", queue_id=queue_id) for queue_id in range(2)]
        refused(ValueError, "name several queues", lambda: curlew.send_batch("orders", two))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost:8710", "has no scheme; write 'http://localhost:8710'"),
        ("ftp://host", "neither http:// nor https://"),
        ("http://", "has no host"),
        ("http://host:port", "cannot be read"),
        ("http://me:secret@host", "give the key as key="),
        ("http://host/?a=1", "a query or a fragment"),
    ],
)
def test_addresses(address: str, words: str) -> None:
    refused(ValueError, words, lambda: Client(address))
    refused(TypeError, "url is a str", lambda: Client(8710))


def test_addresses_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURLEW_URL", "http://a:1/mq/, https://[::1]")
    first, second = nodes_of(None)
    assert (first.host, first.port, first.prefix, first.authority) == ("a", 1, "/mq", "a:1")
    assert (second.port, second.is_tls, second.authority) == (443, True, "[::1]")
    monkeypatch.delenv("CURLEW_URL")
    assert nodes_of(None) == [node_of("http://127.0.0.1:8710")]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("250ms", 0.25), ("30s", 30), ("1.5m", 90), ("2h", 7200), (3, 3), (timedelta(days=1), 86400)],
)
def test_durations(given: float | str | timedelta, seconds: float) -> None:
    assert seconds_of("timeout", given) == seconds


def test_a_key_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(NOWHERE, key="curlew_secret") as curlew:
        assert "secret" not in repr(curlew) + repr(vars(curlew))
    monkeypatch.setenv("CURLEW_KEY", "curlew_secret\n")
    with pytest.raises(ValueError, match="line feed") as caught:
        Client(NOWHERE)
    assert "secret" not in str(caught.value)


def test_one_client_of_an_id_in_a_process() -> None:
    with Client(NOWHERE, client_id="till-3"):
        words = "another client .* 'till-3'"
        refused(ValueError, words, lambda: Client(NOWHERE, client_id="till-3"))
    with Client(NOWHERE, client_id="till-3") as curlew:
        assert curlew.client_id == "till-3"
    refused(ValueError, "client_id is 'a b'", lambda: AsyncClient(NOWHERE, client_id="a b"))


def test_states() -> None:
    curlew = Client(NOWHERE)
    states = [curlew.state]
    with curlew:
        states.append(curlew.state)
    curlew.close()
    assert [*states, curlew.state] == ["created", "running", "closed"]
    refused(ClientClosed, "the client is closed", lambda: curlew.send("orders", b"x"))


@pytest.mark.parametrize("call", [Client.send, Client.send_async, Client.send_oneway])
def test_a_forked_child_is_refused(call: Callable[..., object]) -> None:
    with Client(NOWHERE) as curlew:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                call(curlew, "orders", b"x")
            except BaseException as error:  # noqa: BLE001
                os.write(writer, pickle.dumps((type(error).__name__, str(error))))
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        name, text = pickle.loads(os.read(reader, 4096))
        os.close(reader)
        assert name == "ClientClosed"
        assert "make another one after a fork" in text


def test_a_forked_child_closes_whatever_threads_held_that_it_does_not_have() -> None:
    with Client(NOWHERE) as curlew:
        with curlew._lock:
            child = os.fork()
            if child == 0:  # pragma: no cover
                signal.alarm(10)
                curlew.close()
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_who_waits_for_room_while_the_client_closes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, wait_for_room = threading.Event(), Batches.wait_for_room

    def noted(self: Batches, message: Waiting, timeout_s: float) -> None:
        waits.set()
        wait_for_room(self, message, timeout_s)

    monkeypatch.setattr(Batches, "wait_for_room", noted)
    errors: list[BaseException] = []

    def send() -> None:
        try:
            errors.append(curlew.send_async("orders", b"y").exception(5) or AssertionError())
        except (CurlewError, RuntimeError, TimeoutError) as error:
            errors.append(error)

    curlew = Client(NOWHERE, under_way_messages=1, linger=60, async_retries=0)
    first = curlew.send_async("orders", b"x")
    sending = threading.Thread(target=send)
    sending.start()
    assert waits.wait(10)
    curlew.close()
    sending.join()
    assert isinstance(first.exception(0), ConnectionFailed)
    assert list(map(type, errors)) == [ClientClosed]


def test_what_cannot_be_encoded_is_not_stored() -> None:
    with Client(NOWHERE, batch_messages=2) as curlew:
        futures = [
            curlew.send_async("orders", b"x", properties={"a": "b" * size}) for size in (1, 40_000)
        ]
        for each in futures:
            error = each.exception(10)
            assert error is not None
            assert error.outcome == "not_stored"
            assert "32767" in str(error)
