"""Answers of HTTP/1.1 from their bytes, however they are cut."""

import pytest
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
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        PLAIN + b"more",
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        AnswerParser().feed(data)


def test_values_of_headers_cannot_end_their_line() -> None:
    assert header_value("a\r\nX: 1") == "a%0D%0AX:%201"
    assert header_value("50% ä") == "50%25%20%C3%A4"
