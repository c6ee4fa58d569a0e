"""The blocking modules are what is made from their asyncio source, and frames are readable."""

import importlib.util
from pathlib import Path
from types import ModuleType

from curlew_client.wire import frames

CLIENT = Path(__file__).parents[2] / "clients" / "python"


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_blocking_modules_are_fresh() -> None:
    assert module_at(CLIENT / "make_blocking.py").stale() == []


def test_a_reader_of_frames_reads_those_of_the_client() -> None:
    maker = frames.RecordMaker("orders")
    properties = frames.encode_properties("created", ("a", "b"), {"x": "ü"}, "text/plain")
    records = [maker.make(b"hello", properties, 7, 1_700_000_000_000), maker.make(b"", b"")]
    first, second = module_at(CLIENT / "batch_frames.py").read_frame(frames.encode_frame(records))
    assert (first["body"], first["born_time_ms"]) == (b"hello", 1_700_000_000_000)
    known = {"TAGS": "created", "KEYS": "a b", "MQ_CONTENT_TYPE": "text/plain", "x": "ü"}
    assert {**first["properties"], **known} == first["properties"]
    assert (second["body"], second["topic"]) == (b"", "orders")
