"""Options of a stream or a batch read, with sizes of a pull that no user can set."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark_curlew.options import SourceOptions, parse_stream_options

_SIZES = {"pullMaxMessages": "pull_max_messages", "pullMaxBytes": "pull_max_bytes"}


def sized_options(
    given: Mapping[str, str],
    parse: Callable[[Mapping[str, str]], SourceOptions] = parse_stream_options,
) -> SourceOptions:
    """Of `given`, `pullMaxMessages` and `pullMaxBytes` are the sizes, the rest options."""
    sizes = {field: int(given[name]) for name, field in _SIZES.items() if name in given}
    options = parse({name: value for name, value in given.items() if name not in _SIZES})
    return replace(options, **sizes)  # type: ignore[arg-type]
