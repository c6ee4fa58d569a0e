"""`curlew policy …`: rules beside the roles, over HTTP."""

from typing import Literal

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_table, say
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import NotSo

app = App("policy", "Rules that allow or deny beside the roles; a denial wins.")


@app.command(name="list")
def list_(prefix: str = "", /, *, where: Where = Where()) -> None:
    """All policies."""
    found = list(Service(where).pages("/v1/policies", "policies", prefix=prefix))
    if where.json:
        print_json(found)
        return
    columns = "name", "subject", "effect", "actions", "resources", "namespace"
    print_table(
        columns,
        [[each[name] for name in columns] for each in found],
        empty="there are no policies: roles alone decide",
    )


@app.command
def show(name: str, /, *, where: Where = Where()) -> None:
    """One policy."""
    found = Service(where).get(f"/v1/policies/{part(name)}")
    print_json(found) if where.json else print_fields(found)


@app.command
def put(
    name: str,
    /,
    *,
    subject: str,
    effect: Literal["allow", "deny"] = "allow",
    action: tuple[str, ...],
    resource: tuple[str, ...],
    bound_to: str | None = None,
    dry_run: DryRun = False,
    where: Where = Where(),
) -> None:
    """Make a policy, or replace it.

    Parameters
    ----------
    subject
        Whom it is for, such as principal:billing or role:producer.
    effect
        Whether it allows or denies.
    action
        PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST, ADMIN or *; again for more.
    resource
        What it is about, such as topic:orders-*; again for more.
    bound_to
        The namespace of the resources.
    """
    body: dict[str, object] = {
        "subject": subject,
        "effect": effect.upper(),
        "actions": list(action),
        "resources": list(resource),
    }
    if bound_to is not None:
        body["namespace"] = bound_to
    path = f"/v1/policies/{part(name)}"
    done = f"policy {name} is kept"
    change(Service(where), "PUT", path, body=body, dry_run=dry_run, as_json=where.json, done=done)


@app.command
def delete(
    name: str, /, *, yes: Yes = False, dry_run: DryRun = False, where: Where = Where()
) -> int:
    """Take a policy away."""
    if not dry_run and not confirm(f"Delete policy {name}?", yes=yes):
        return Exit.REFUSED
    path, done = f"/v1/policies/{part(name)}", f"deleted {name}"
    change(Service(where), "DELETE", path, dry_run=dry_run, as_json=where.json, done=done)
    return Exit.DONE


@app.command
def may(
    action: str,
    /,
    *,
    topic: str | None = None,
    group: str | None = None,
    producer: str | None = None,
    where: Where = Where(),
) -> int:
    """Whether the key in use may do ACTION there, and which rule says so."""
    if topic is None and group is None and producer is None:
        raise NotSo("name what it is about: --topic, --group or --producer")
    asked = {"action": action, "topic": topic, "group": group, "producer": producer}
    found = Service(where).get("/v1/whoami", **asked)
    if where.json:
        print_json(found)
    else:
        rule = found["rule"]
        why = f"by the policy {rule['policy']}" if rule else "by its roles"
        say(f"{'yes' if found['allowed'] else 'no'}, {why}")
    return Exit.DONE if found["allowed"] else Exit.NOT_ALLOWED
