"""Questions before what cannot be taken back; and what a change would do."""

import sys
from typing import Annotated, Any

from curlew_client.command.output import print_fields, print_json, say
from curlew_client.command.parsing.declared import Parameter
from curlew_client.command.service import Document, Service
from curlew_client.command.words import NotSo

Yes = Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask.")]
DryRun = Annotated[bool, Parameter(help="Only say what would be done.")]


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on. Without a terminal nobody can be asked: then `--yes` has to say it."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotSo(f"{question} Say --yes, or --dry-run to see what would be done")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def change(
    service: Service,
    method: str,
    path: str,
    *,
    body: Any = None,
    dry_run: bool = False,
    as_json: bool = False,
    done: str = "done",
) -> Document:
    """A change of the control plane, and what it says."""
    params = {"dry_run": True} if dry_run else {}
    shown = service.request(method, path, json=body, params=params)
    if as_json:
        print_json(shown)
        return shown
    if dry_run:
        say("would be:")
        print_fields(shown)
        return shown
    say(done)
    for name, values in (shown.get("changed") or {}).items():
        if isinstance(values, list) and len(values) == 2:
            say(f"  {name}: {values[0]} → {values[1]}")
    for effect in shown.get("effects") or ():
        say(f"  {effect.get('detail') or effect.get('code')}")
    for warning in shown.get("warnings") or ():
        say(f"  warning: {warning}")
    return shown
