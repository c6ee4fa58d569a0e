"""How commands and their options are written down. Imports nothing of weight, so that a command is
there at once."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

Function = TypeVar("Function", bound=Callable[..., Any])


class Parameter:
    """What an annotation does not say of an option: its names, where they are not `--` and the
    parameter's, and its help."""

    __slots__ = ("help", "name")

    def __init__(
        self, *, name: str | tuple[str, ...] | None = None, help: str | None = None
    ) -> None:
        self.name = name
        self.help = help


class App:
    """A command: its function, or commands below it, or both."""

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self.help = help
        self.commands: dict[str, App | Callable[..., Any]] = {}
        self.main: Callable[..., Any] | None = None

    def default(self, function: Function) -> Function:
        """The function of the command itself."""
        self.main = function
        return function

    @overload
    def command(self, made: "App", *, name: str) -> "App": ...
    @overload
    def command(self, made: Function) -> Function: ...
    @overload
    def command(self, *, name: str) -> Callable[[Function], Function]: ...
    def command(self, made: Any = None, *, name: str | None = None) -> Any:
        """A command below it; by the name of the function unless said."""

        def enter(found: Any) -> Any:
            self.commands[name or option_name(found.__name__)] = found
            return found

        return enter if made is None else enter(made)


def option_name(name: str) -> str:
    """A name of Python as words have it."""
    return name.strip("_").replace("_", "-")
