"""`curlew tx …`: transactions that wait for a decision."""

from curlew_client.command.asking import DryRun, Yes, change, confirm
from curlew_client.command.entry import Exit
from curlew_client.command.output import print_fields, print_json, print_table
from curlew_client.command.parsing.declared import App
from curlew_client.command.service import Service, Where, part
from curlew_client.command.words import time_text

app = App("tx", "Transactions: list, show, commit, roll back.")


@app.command(name="list")
def list_(*, state: str | None = None, group: str | None = None, where: Where = Where()) -> None:
    """Transactions, those that wait among them.

    Parameters
    ----------
    state
        Those in this state, such as prepared.
    group
        Those of this producer group.
    """
    service = Service(where)
    found = list(
        service.pages("/v1/transactions", "transactions", state=state, producer_group=group)
    )
    if where.json:
        print_json(found)
        return
    print_table(
        ("transaction", "state", "group", "topic", "prepared", "checks", "next check"),
        [
            (
                each["transaction_id"],
                each["state"],
                each["producer_group"],
                each["topic"],
                time_text(each["prepared_ms"]),
                each["checks"],
                time_text(each["check_time_ms"] if each["state"] == "PREPARED" else None),
            )
            for each in found
        ],
        empty="there are no such transactions",
    )


@app.command
def show(transaction: str, /, *, where: Where = Where()) -> None:
    """One transaction."""
    found = Service(where).get(f"/v1/transactions/{part(transaction)}")
    print_json(found) if where.json else print_fields(found)


@app.command
def commit(
    transaction: str, /, *, yes: Yes = False, dry_run: DryRun = False, where: Where = Where()
) -> int:
    """Let its message be delivered, whatever its producer thinks."""
    return _decide(transaction, "commit", yes=yes, dry_run=dry_run, where=where)


@app.command
def rollback(
    transaction: str, /, *, yes: Yes = False, dry_run: DryRun = False, where: Where = Where()
) -> int:
    """Let its message never be delivered, whatever its producer thinks."""
    return _decide(transaction, "rollback", yes=yes, dry_run=dry_run, where=where)


def _decide(transaction: str, how: str, *, yes: bool, dry_run: bool, where: Where) -> int:
    question = f"Decide transaction {transaction} for its producer: {how}?"
    if not dry_run and not confirm(question, yes=yes):
        return Exit.REFUSED
    path = f"/v1/transactions/{part(transaction)}:{how}"
    change(Service(where), "POST", path, dry_run=dry_run, as_json=where.json, done=f"{how}: done")
    return Exit.DONE
