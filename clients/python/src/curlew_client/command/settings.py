"""What topics and groups have in common for a shell: they are made with settings, and changed."""

from typing import Annotated

from curlew_client.command.asking import change
from curlew_client.command.parsing.declared import Parameter
from curlew_client.command.service import Document, Service, Where, part
from curlew_client.command.words import NotSo, pairs_of, time_text, value_of

Settings = Annotated[
    tuple[str, ...],
    Parameter(name="--set", help="A setting: name=value; again for more."),
]


def make(
    where: Where, kind: str, name: str, given: Document, settings: Settings, *, dry_run: bool
) -> None:
    """Make a topic or a group (`kind`) with the settings that are given, None being not given, and
    those of `--set`. `NotSo` for one that is there."""
    service = Service(where)
    path = f"/v1/{kind}s/{part(name)}"
    body = {each: value for each, value in given.items() if value is not None}
    body |= {each: value_of(text) for each, text in pairs_of("--set", settings).items()}
    if not dry_run and exists(service, path):
        raise NotSo(f"the {kind} {name!r} exists; `curlew {kind} set {name} …` changes it")
    done = f"made {kind} {name}"
    change(service, "PUT", path, body=body, dry_run=dry_run, as_json=where.json, done=done)


def change_settings(
    where: Where,
    kind: str,
    name: str,
    settings: tuple[str, ...],
    *,
    example: str,
    dry_run: bool,
) -> None:
    """Change settings, each `name=value`. `NotSo` without any."""
    if not settings:
        raise NotSo(f"name a setting and its value, such as {example}")
    body = {each: value_of(text) for each, text in pairs_of("a setting", settings).items()}
    path, done = f"/v1/{kind}s/{part(name)}", f"changed {kind} {name}"
    change(Service(where), "PATCH", path, body=body, dry_run=dry_run, as_json=where.json, done=done)


def exists(service: Service, path: str) -> bool:
    """Whether there is something at a path."""
    from curlew_client.errors import NotFound

    try:
        service.get(path)
    except NotFound:
        return False
    return True


def readable(shown: dict[str, object]) -> dict[str, object]:
    """Times as people read them; what came twice, once."""
    shown = {
        name: value
        for name, value in shown.items()
        if name.endswith("ed_ms") or name.removesuffix("_ms") not in shown.keys() - {name}
    }
    return {
        (name.removesuffix("_ms") if name.endswith("ed_ms") else name): (
            time_text(value) if name.endswith("ed_ms") else value
        )
        for name, value in shown.items()
    }
