"""An answer that goes on for as long as the node likes: the lines of its body, as they come."""

from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader
from typing import TYPE_CHECKING, NoReturn

from curlew_client.blocking.connection import connected
from curlew_client.errors import ConnectionFailed, NotCurlew
from curlew_client.options import Node
from curlew_client.wire.http1 import (
    ANSWER_BYTES_MAX,
    HEAD_BYTES_MAX,
    Answer,
    AnswerParser,
    MalformedAnswer,
    chunk_size,
)
from curlew_client.wire.problems import check_is_curlew, error_of

if TYPE_CHECKING:
    import ssl

_OK = b" 200"
_PART_BYTES = 64 * 1024
_SIZE_BYTES_MAX = 256
"""Of the line before a chunk."""


def answer_lines(
    node: Node, tls: "ssl.SSLContext | None", request: bytes, silence_s: float
) -> Iterator[bytes]:
    """The lines, without their ends, on a connection of its own; it ends when the answer does.

    Raises `ConnectionFailed` when it breaks, or nothing comes for `silence_s`; for a refusal what
    it says; `NotCurlew`.
    """
    with closing(connected(node, tls, silence_s)) as sock:
        try:
            sock.sendall(request)
            with sock.makefile("rb") as file:
                yield from _lines(file, node.url)
        except OSError as error:
            text = f"the stream of {node.url} broke: {error}"
            raise ConnectionFailed(text, "not_stored") from error
        except MalformedAnswer as error:
            text = f"{node.url} does not speak HTTP as a Curlew node does: {error}"
            raise NotCurlew(text) from error


def _lines(file: BufferedReader, url: str) -> Iterator[bytes]:
    answer = _begun(file, url)
    encoding = answer.headers.get("transfer-encoding", "").lower()
    rest = b""
    for part in _chunks(file) if encoding.endswith("chunked") else _parts(file):
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > ANSWER_BYTES_MAX:
            raise MalformedAnswer(f"a line has more than {ANSWER_BYTES_MAX} bytes")
        yield from (line.removesuffix(b"\r") for line in lines)


def _begun(file: BufferedReader, url: str) -> Answer:
    """The head of a success, whose body follows in the file; a refusal is raised."""
    parser, head, answer = AnswerParser(), b"", None
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline(HEAD_BYTES_MAX) or _ended()
        head += line
        answer = parser.feed(line)
    if not head.startswith(_OK, len(b"HTTP/1.1")):
        while answer is None:
            part = file.read1(_PART_BYTES)
            answer = parser.feed(part) if part else parser.end() or _ended()
        raise error_of(answer, url)
    answer = Answer(200, head, b"", keep_alive=False)
    check_is_curlew(answer, url)
    return answer


def _chunks(file: BufferedReader) -> Iterator[bytes]:
    while True:
        line = file.readline(_SIZE_BYTES_MAX) or _ended()
        size = chunk_size(line)
        if size == 0:
            return
        if size > ANSWER_BYTES_MAX:
            raise MalformedAnswer(f"a chunk has more than {ANSWER_BYTES_MAX} bytes")
        yield file.read(size)
        file.readline(_SIZE_BYTES_MAX)


def _parts(file: BufferedReader) -> Iterator[bytes]:
    while part := file.read1(_PART_BYTES):
        yield part


def _ended() -> NoReturn:
    raise ConnectionError("the node closed it")
