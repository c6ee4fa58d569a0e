"""Answers of HTTP/1.1 from their bytes, however they are cut; and lines of one that goes on."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from curlew_client.blocking.streaming import answer_lines
from curlew_client.errors import ConnectionFailed, NotCurlew, TopicNotFound
from curlew_client.options import node_of
from curlew_client.wire.http1 import Answer, AnswerParser, MalformedAnswer, header_value

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nMQ-Request-Id: r1\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 204 No Content\r\nMQ-Request-Id: r1\r\n\r\n"


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INTERIM, EMPTY])
def test_an_answer_may_come_in_any_pieces(data: bytes) -> None:
    for cut in range(1, len(data)):
        parser = AnswerParser()
        found = [parser.feed(data[:cut]), parser.feed(data[cut:])]
        (answer,) = [each for each in found if each is not None]
        assert answer.body == (b"" if data is EMPTY else b"hello")
        assert answer.keep_alive


def test_a_parser_takes_one_answer_after_the_other() -> None:
    parser = AnswerParser()
    for _ in range(3):
        answer = parser.feed(PLAIN)
        assert answer is not None
        assert (answer.status, answer.headers["mq-request-id"]) == (201, "r1")


def test_a_connection_that_closes_is_not_kept() -> None:
    closing = PLAIN.replace(b"MQ-Request-Id: r1", b"Connection: close")
    answers = [AnswerParser().feed(closing), AnswerParser().feed(PLAIN.replace(b"1.1", b"1.0", 1))]
    assert [answer is not None and answer.keep_alive for answer in answers] == [False, False]


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    parser = AnswerParser()
    assert parser.feed(b"HTTP/1.1 200 OK\r\n\r\nhel") is None
    assert parser.feed(b"lo") is None
    answer = parser.end()
    assert isinstance(answer, Answer)
    assert (answer.body, answer.keep_alive) == (b"hello", False)


def test_a_broken_off_answer_is_none() -> None:
    parser = AnswerParser()
    parser.feed(PLAIN[:-1])
    assert parser.end() is None


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n",
        *(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b\r\n" % size
            for size in (b"zz", b"-1", b"0x5", b"1_0", b";x")
        ),
        PLAIN + b"more",
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        AnswerParser().feed(data)


def test_values_of_headers_cannot_end_their_line() -> None:
    assert header_value("a\r\nX: 1") == "a%0D%0AX:%201"
    assert header_value("50% ä") == "50%25%20%C3%A4"


BEGUN = b"HTTP/1.1 200 OK\r\nMQ-Request-Id: r1\r\n"
CHUNKS = BEGUN + b"Transfer-Encoding: chunked\r\n\r\n"
PROBLEM = b'{"code": "TOPIC_NOT_FOUND", "detail": "there is no topic x"}'


@contextmanager
def saying(*parts: bytes, stays: bool = False) -> Iterator[str]:
    """The address of a node that answers with these bytes, whatever is asked."""
    ended = threading.Event()

    def answer() -> None:
        taken, _ = listener.accept()
        with taken:
            taken.recv(65_536)
            for part in parts:
                taken.sendall(part)
            if stays:
                ended.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def lines(*parts: bytes, stays: bool = False, silence_s: float = 10.0) -> list[bytes]:
    found = []
    with saying(*parts, stays=stays) as url:
        for line in answer_lines(node_of(url), None, b"GET / HTTP/1.1\r\n\r\n", silence_s):
            found.append(line)
            if line == b"enough":
                break
    return found


@pytest.mark.parametrize(
    "parts",
    [
        (CHUNKS, b"3\r\nid:\r\n", b"6;x=y\r\n 1\r\n\n", b"\n\r\n0\r\n\r\n"),
        (CHUNKS + b"9\r\nid: 1\r\n\n\n\r\n0\r\n\r\n",),
        (BEGUN + b"\r\n", b"id:", b" 1\n\n", b"\n"),
        (BEGUN[:20], BEGUN[20:] + b"Connection: close\r\n\r\nid: 1\r\n\r\n\r\n"),
    ],
    ids=["chunks that cut lines", "one chunk", "to the end of the connection", "a head in pieces"],
)
def test_lines_come_whole(parts: tuple[bytes, ...]) -> None:
    assert lines(*parts) == [b"id: 1", b"", b""]


def test_a_line_is_there_before_the_answer_ends() -> None:
    assert lines(CHUNKS, b"7\r\nenough\n\r\n", stays=True) == [b"enough"]


def test_a_refusal_is_the_error_that_it_says() -> None:
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(PROBLEM)
    with pytest.raises(TopicNotFound, match="there is no topic x"):
        lines(head, PROBLEM[:5], PROBLEM[5:])


@pytest.mark.parametrize(
    ("parts", "error", "said"),
    [
        ((), ConnectionFailed, "broke: the node closed it"),
        ((BEGUN,), ConnectionFailed, "broke: the node closed it"),
        ((CHUNKS, b"9\r\nid"), ConnectionFailed, "broke: the node closed it"),
        ((b"HTTP/1.1 404 X\r\nContent-Length: 9\r\n\r\nx",), ConnectionFailed, "closed it"),
        ((b"SSH-2.0-OpenSSH\r\n",), NotCurlew, "does not speak HTTP"),
        *(
            ((CHUNKS, size + b"\r\n"), NotCurlew, "a chunk has no size")
            for size in (b"x", b"-1", b"0x5", b"1_0", b"")
        ),
        ((CHUNKS, b"fffffffff\r\n"), NotCurlew, "a chunk has more than"),
        ((b"HTTP/1.1 200 OK\r\n\r\n<html>\n",), NotCurlew, "not as a Curlew node does"),
    ],
    ids=str,
)
def test_what_breaks_is_said(parts: tuple[bytes, ...], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        lines(*parts)


def test_silence_is_a_break() -> None:
    with pytest.raises(ConnectionFailed, match="timed out"):
        lines(CHUNKS, stays=True, silence_s=0.05)
