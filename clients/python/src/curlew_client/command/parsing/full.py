"""All words that are not plain, by cyclopts: help, completion, other spellings, and what is wrong.
Imported only for them, because cyclopts takes long to import."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import cache
from types import FunctionType
from typing import Annotated, Any, get_args, get_origin

import cyclopts

from curlew_client.command.parsing import declared
from curlew_client.command.parsing.usage import usage_text
from curlew_client.command.words import NotSo


def run_by_cyclopts(app: declared.App, words: Sequence[str]) -> Any:
    """What the function of the command gives; help is printed. Raises `NotSo` for wrong words."""
    try:
        return full_app(app)(words)
    except cyclopts.CycloptsError as error:
        raise NotSo(usage_text(error, words)) from None


def full_app(app: declared.App) -> cyclopts.App:
    """The same command as an app of cyclopts; one without a name is the whole of `curlew`."""
    made = cyclopts.App(
        name=f"curlew {app.name}".rstrip(),
        help=app.help,
        help_format="plaintext",
        version_flags=(),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        default_parameter=cyclopts.Parameter(json_list=False),  # a path may begin with a bracket
    )
    for name, found in app.commands.items():
        if isinstance(found, declared.App):
            made.command(full_app(found), name=name)
        else:
            made.command(_function(found), name=name)
    if app.main is not None:
        made.default(_function(app.main))
    return made


def _function(function: Any) -> Callable[..., Any]:
    """A function of the same code, whose annotations are such as cyclopts reads."""
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    defaults = (function.__kwdefaults__ or {}).items()
    made.__kwdefaults__ = {name: _of_its_kind(value) for name, value in defaults}
    made.__doc__ = function.__doc__
    made.__module__ = function.__module__
    annotations = function.__annotations__.items()
    made.__annotations__ = {name: _annotation(each) for name, each in annotations}
    return made


def _of_its_kind(default: Any) -> Any:
    """A default as it is, or of the class that `_flattened` makes: pydantic, which cyclopts calls
    where it is loaded, takes no other."""
    kind: Any = type(default)
    if not hasattr(kind, declared.FLATTENED):
        return default
    return _flattened(kind)(**{each.name: getattr(default, each.name) for each in fields(kind)})


def _annotation(annotation: Any) -> Any:
    if isinstance(annotation, type) and hasattr(annotation, declared.FLATTENED):
        return _flattened(annotation)
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, *more = get_args(annotation)
    return Annotated[(kind, *(_parameter(each) for each in more))]


def _parameter(found: Any) -> Any:
    if not isinstance(found, declared.Parameter):
        return found
    said = {name: getattr(found, name) for name in ("name", "negative", "help")}
    return cyclopts.Parameter(**{name: value for name, value in said.items() if value is not None})


@cache
def _flattened(made: type[Any]) -> type[Any]:
    """A class below it, whose members are options for cyclopts."""
    members = [(each.name, _annotation(each.type), _default(each)) for each in fields(made)]
    below = make_dataclass(made.__name__, members, bases=(made,), frozen=True, kw_only=True)
    below.__module__ = made.__module__  # cyclopts looks into no class of the standard library
    return cyclopts.Parameter(name="*")(below)


def _default(found: Field[Any]) -> Any:
    return field() if found.default is MISSING else field(default=found.default)
