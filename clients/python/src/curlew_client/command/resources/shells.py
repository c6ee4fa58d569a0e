"""`curlew completion`: what a shell offers at the tab key."""

from typing import Literal

from curlew_client.command.output import print_line
from curlew_client.command.parsing.declared import App

app = App("completion", "Print the completion of a shell.")


@app.default
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion of a shell.

    bash: `curlew completion bash > ~/.local/share/bash-completion/completions/curlew`; zsh: into a
    file `_curlew` in a directory of `fpath`; fish: `~/.config/fish/completions/curlew.fish`.
    """
    from curlew_client.command.parsing.completing import SCRIPTS

    print_line(SCRIPTS[shell].strip())
