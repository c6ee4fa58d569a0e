"""What a function takes as a command, read from its signature: values by position, and options by
name. Pure.

Parameters before `/` are values, `*names` takes all that come behind them, those behind `*` are
options. Kinds: text, whole numbers, numbers, files, switches, choices (`Literal`), each of them
optional, and `tuple[kind, ...]` for an option that is given again for more. The members of a
`NamedTuple` are options of every command that has a parameter of it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from curlew_client.command.parsing.declared import Parameter, option_name

KINDS: Final = frozenset({str, int, float, Path, bool})
NO: Final = "--no-"
"""Begins the word that switches an option off."""


class Taken(NamedTuple):
    """A value or an option."""

    names: tuple[str, ...]
    """Words of an option; the one name of a value, in capitals."""
    path: tuple[str, ...]
    """The parameter, and in a group of options its member."""
    kind: Any
    """One of `KINDS`, or the choices, a tuple of texts."""
    is_many: bool
    default: Any
    """`REQUIRED`: it has to be given."""
    help: str

    @property
    def is_switch(self) -> bool:
        """Whether no value follows it."""
        return self.kind is bool


class Signature(NamedTuple):
    """Of one function."""

    places: list[Taken]
    rest: Taken | None
    """What takes the values behind the places."""
    options: list[Taken]


REQUIRED: Final = object()


def signature_of(function: Callable[..., Any]) -> Signature:
    """What it takes."""
    found: Any = function
    code, annotations = found.__code__, found.__annotations__
    assert code.co_argcount == code.co_posonlyargcount, f"{function} has parameters of two ways"
    names = code.co_varnames
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    ends = found.__defaults__ or ()
    defaults = (*(REQUIRED,) * (first - len(ends)), *ends)
    places = [
        _taken((name,), (name.upper(),), annotations[name], default)
        for name, default in zip(names[:first], defaults, strict=True)
    ]
    rest = None
    if code.co_flags & 0x04:  # *names
        name = names[last]
        rest = _taken((name,), (name.upper(),), annotations[name], ())
    named = found.__kwdefaults__ or {}
    options = [
        option
        for name in names[first:last]
        for option in _options(name, annotations[name], named.get(name, REQUIRED))
    ]
    return Signature(places, rest, options)


def is_group(annotation: Any) -> bool:
    """Whether it stands for options, and is none."""
    return hasattr(annotation, "_fields")


def _options(name: str, annotation: Any, default: Any) -> Iterator[Taken]:
    if not is_group(annotation):
        yield _option((name,), annotation, default)
        return
    for member, found in annotation.__annotations__.items():
        yield _option((name, member), found, getattr(default, member))


def _option(path: tuple[str, ...], annotation: Any, default: Any) -> Taken:
    name = option_name(path[-1])
    taken = _taken(path, (f"--{name}",), annotation, default)
    if taken.is_switch and default is None:  # yes, no, or not said
        return taken._replace(names=(*taken.names, f"{NO}{name}"))
    return taken


def _taken(path: tuple[str, ...], names: tuple[str, ...], annotation: Any, default: Any) -> Taken:
    kind, parameter = annotation, None
    if get_origin(kind) is Annotated:
        kind, parameter = get_args(kind)
    if isinstance(parameter, Parameter) and parameter.name is not None:
        names = (parameter.name,) if isinstance(parameter.name, str) else parameter.name
    help_ = parameter.help or "" if isinstance(parameter, Parameter) else ""
    is_many = get_origin(kind) is tuple
    kind = get_args(kind)[0] if is_many else _bare(kind)
    if get_origin(kind) is Literal:
        kind = get_args(kind)
    return Taken(names, path, kind, is_many, default, help_)


def _bare(kind: Any) -> Any:
    """Without `| None`."""
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    [found] = [each for each in get_args(kind) if each is not NoneType]
    return found
