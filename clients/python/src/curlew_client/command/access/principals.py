"""`curlew principal …`: who may do what, over HTTP. `curlew key` of the server does it in the
database of a node on this machine."""

import os
from pathlib import Path
from typing import Annotated

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_line, print_table, say
from curlew_client.command.parsing.declared import App, Parameter
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import NotSo, time_text

app = App("principal", "Who may do what: principals, their roles and API keys.")


@app.command(name="list")
def list_(prefix: str = "", /, *, where: Where = Where()) -> None:
    """All principals; keys by their ids only."""
    found = list(Service(where).pages("/v1/principals", "principals", prefix=prefix))
    if where.json:
        print_json(found)
        return
    print_table(
        ("principal", "roles", "namespace", "disabled", "from", "keys", "last used"),
        [
            (
                each["name"],
                each["roles"],
                each["namespace"],
                each["disabled"],
                # A node of an earlier version lets everybody in from anywhere, and does not say so.
                each.get("allowed_from") or "anywhere",
                [key["id"] for key in each["keys"]],
                time_text(max((key["last_used_ms"] or 0 for key in each["keys"]), default=0) or ""),
            )
            for each in found
        ],
        empty="there are no principals: nobody needs a key",
    )


@app.command
def show(name: str, /, *, where: Where = Where()) -> None:
    """One principal, and its keys by their ids."""
    found = Service(where).get(f"/v1/principals/{part(name)}")
    print_json(found) if where.json else print_fields(found)


@app.command
def put(
    name: str,
    /,
    *,
    role: tuple[str, ...] = (),
    resource: tuple[str, ...] = (),
    bound_to: str | None = None,
    disabled: bool | None = None,
    from_: Annotated[tuple[str, ...], Parameter(name="--from")] = (),
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Make or change a principal.

    Parameters
    ----------
    role
        One of `GET /v1/roles`; again for more.
    resource
        Keep it to these, such as topic:orders-*; again for more.
    bound_to
        The one namespace that it belongs to.
    disabled
        Whether its keys are refused.
    from_
        A network or address that it is let in from, such as 10.0.0.0/8; again for more. Without
        one: from anywhere.
    """
    body: dict[str, object] = {}
    if role:
        body["roles"] = list(role)
    if resource:
        body["resources"] = list(resource)
    if bound_to is not None:
        body["namespace"] = bound_to
    if disabled is not None:
        body["disabled"] = disabled
    if from_:
        body["allowed_from"] = list(from_)
    path = f"/v1/principals/{part(name)}"
    done = f"principal {name} is kept; `curlew principal new-key {name}` gives it a key"
    change(Service(where), "PUT", path, body=body, dry_run=dry_run, as_json=where.json, done=done)


@app.command
def new_key(
    name: str,
    /,
    *,
    expires: str | None = None,
    to_file: Path | None = None,
    where: Where = Where(),
) -> None:
    """Make another key for a principal. It is shown once.

    Parameters
    ----------
    expires
        How long it works, such as 90d.
    to_file
        Write the key there, for its owner alone, and do not print it.
    """
    if to_file is not None and to_file.exists():
        raise NotSo(f"{to_file} exists; name another file, so that no key is lost")
    body = {"expires": expires} if expires is not None else {}
    path = f"/v1/principals/{part(name)}/keys"
    service = Service(where)
    made = service.request("POST", path, json=body)
    if to_file is not None:
        number = os.open(to_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w") as file:
            file.write(made.pop("key") + "\n")
        say(f"the key {made['id']} is in {to_file}")
        if where.json:
            print_json(made)
        return
    if where.json:
        print_json(made)
        return
    say(f"the key {made['id']}, which is not shown again:")
    print_line(made["key"])


@app.command
def revoke(
    name: str,
    key_id: str,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> int:
    """Take a key away."""
    if not dry_run and not confirm(f"Take the key {key_id} away from {name}?", yes=yes):
        return Exit.REFUSED
    path = f"/v1/principals/{part(name)}/keys/{part(key_id)}"
    done = f"revoked {key_id}"
    change(Service(where), "DELETE", path, dry_run=dry_run, as_json=where.json, done=done)
    return Exit.DONE


@app.command
def delete(
    name: str, /, *, yes: Yes = False, dry_run: DryRun = False, where: Where = Where()
) -> int:
    """Delete a principal with all its keys."""
    if not dry_run and not confirm(f"Delete principal {name} with all its keys?", yes=yes):
        return Exit.REFUSED
    path = f"/v1/principals/{part(name)}"
    done = f"deleted {name}"
    change(Service(where), "DELETE", path, dry_run=dry_run, as_json=where.json, done=done)
    return Exit.DONE
