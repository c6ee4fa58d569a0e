"""`curlew completion`: what a shell offers at the tab key."""

from typing import Literal

from curlew_client.command.catalog import COMMANDS
from curlew_client.command.output import print_line
from curlew_client.command.parsing.declared import App
from curlew_client.command.running import app_of

app = App("completion", "Print the completion of a shell.")


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion of a shell.

    bash: `curlew completion bash > ~/.local/share/bash-completion/completions/curlew`; zsh: into a
    file `_curlew` in a directory of `fpath`; fish: `~/.config/fish/completions/curlew.fish`.
    """
    from curlew_client.command.parsing.full import full_app

    print_line(full_app(whole()).generate_completion(shell=shell))


def whole() -> App:
    """All commands of this package as one. Imports all of them."""
    one = App("", "")
    for name in COMMANDS:
        one.command(app_of(name), name=name)
    return one
