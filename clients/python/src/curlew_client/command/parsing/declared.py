"""How commands and their options are written down. Imports nothing of cyclopts, so that a command
is there at once: `plain` reads this as it is, `full` gives it to cyclopts."""

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made")

FLATTENED: Final = "__curlew_flattened__"


class Parameter:
    """What an annotation does not say of an option, as cyclopts has it: other names, its help, and
    `negative=()` for a switch that has no `--no-…`. `Parameter(name="*")` decorates a dataclass
    whose members are options of every command that has a parameter of it."""

    __slots__ = ("help", "name", "negative")

    def __init__(
        self,
        *,
        name: str | tuple[str, ...] | None = None,
        negative: tuple[str, ...] | None = None,
        help: str | None = None,
    ) -> None:
        self.name = name
        self.negative = negative
        self.help = help

    def __call__(self, made: type[Made]) -> type[Made]:
        setattr(made, FLATTENED, True)
        return made


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
