"""`curlew namespace …`: whose topics and groups are kept apart."""

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_json, print_table
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import time_text

app = App("namespace", "Namespaces: each has topics and groups of its own.")


@app.command(name="list")
def list_(prefix: str = "", /, *, where: Where = Where()) -> None:
    """All namespaces but the default one, which has no name."""
    found = list(Service(where).pages("/v1/namespaces", "namespaces", prefix=prefix))
    if where.json:
        print_json(found)
        return
    print_table(
        ("namespace", "topics", "groups", "created"),
        [
            (each["namespace"], each["topics"], each["groups"], time_text(each["created_ms"]))
            for each in found
        ],
        empty="there are no namespaces; `curlew namespace create NAME` makes one",
    )


@app.command
def create(name: str, /, *, dry_run: DryRun = False, where: Where = Where()) -> None:
    """Make a namespace."""
    path, done = f"/v1/namespaces/{part(name)}", f"made namespace {name}"
    change(Service(where), "PUT", path, dry_run=dry_run, as_json=where.json, done=done)


@app.command
def delete(
    name: str, /, *, yes: Yes = False, dry_run: DryRun = False, where: Where = Where()
) -> int:
    """Delete a namespace, which must be empty."""
    if not dry_run and not confirm(f"Delete namespace {name}?", yes=yes):
        return Exit.REFUSED
    path, done = f"/v1/namespaces/{part(name)}", f"deleted {name}"
    change(Service(where), "DELETE", path, dry_run=dry_run, as_json=where.json, done=done)
    return Exit.DONE
