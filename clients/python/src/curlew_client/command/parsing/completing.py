"""What a shell offers at the tab key: commands, options, choices. Pure.

The shell asks `curlew --complete WORDS`, of which the last is what is written so far, and reads a
line for each offer: the word, a tab, and what it is. Without any the shell offers files.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from curlew_client.command.catalog import COMMANDS, OPTIONS, options_first
from curlew_client.command.parsing.declared import App
from curlew_client.command.parsing.help import first_line, meaning, parted
from curlew_client.command.parsing.reading import command_of
from curlew_client.command.parsing.signatures import Signature, Taken, signature_of
from curlew_client.command.running import app_of

SCRIPTS: Final[Mapping[str, str]] = {
    "bash": r"""
_curlew() {
    local IFS=$'\n'
    COMPREPLY=($(curlew --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _curlew curlew
""",
    "zsh": r"""
#compdef curlew
_curlew() {
    local -a offers=("${(f)$(curlew --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n $offers ]]; then
        offers=("${(@)offers//:/\\:}")
        offers=("${(@)offers/$'\t'/:}")
        _describe curlew offers
    else
        _files
    fi
}
[[ $funcstack[1] == _curlew ]] && _curlew || compdef _curlew curlew
""",
    "fish": r"""
function __curlew
    set -l words (commandline -opc) (commandline -ct)
    set -l offers (curlew --complete $words[2..] 2>/dev/null)
    count $offers >/dev/null && printf '%s\n' $offers || __fish_complete_path (commandline -ct)
end
complete -c curlew -f -a '(__curlew)'
""",
}

Offer = tuple[str, str]


def completed(words: Sequence[str], others: Mapping[str, str]) -> str:
    """The lines for a shell; `others`: commands of the server, and what they are."""
    *before, last = [word for word in words if word != "="]  # bash has it as a word of its own
    if words[-1] == "=":
        before, last = [*before, last], ""
    before, _ = options_first(before)
    found = _offers(before, last, others)
    return "".join(
        f"{word}\t{text}\n" if text else f"{word}\n"
        for word, text in found
        if word.startswith(last)
    )


def _offers(before: list[str], last: str, others: Mapping[str, str]) -> Iterator[Offer]:
    if not before:
        yield from ((name, found[2]) for name, found in COMMANDS.items())
        yield from others.items()
        return
    if before[0] not in COMMANDS:
        return
    command, _, behind = command_of(app_of(before[0]), before[1:])
    function = command.main if isinstance(command, App) else command
    signature = Signature([], None, []) if function is None else signature_of(function)
    options = {word: each for each in signature.options for word in each.names}
    name, equals, _ = last.partition("=")
    if behind and (option := options.get(behind[-1])) and not option.is_switch:
        yield from _choices(option)
    elif equals and name in options:
        yield from ((f"{name}={choice}", "") for choice, _ in _choices(options[name]))
    elif last.startswith("-"):
        meanings = parted(function.__doc__ if function is not None else None)[1]
        texts = {text.split()[0]: of_all for text, of_all in OPTIONS}
        for word, each in options.items():
            yield word, meaning(each, meanings) or texts.get(word, "")
        yield "--help", "what can be said here"
    elif isinstance(command, App):
        yield from ((name, first_line(each)) for name, each in command.commands.items())
    elif len(behind) < len(signature.places):
        yield from _choices(signature.places[len(behind)])


def _choices(taken: Taken) -> Iterator[Offer]:
    if isinstance(taken.kind, tuple):
        yield from ((choice, "") for choice in taken.kind)
