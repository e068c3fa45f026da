"""What the ledger of a box's connections tells, and in which order."""

from __future__ import annotations

from kern_sandbox._egress.ledger import Ledger, Record


def opened(ledger: Ledger, host: str) -> Record:
    record = ledger.open()
    record.host, record.port = host, 443
    record.allow()
    return record


def hosts(ledger: Ledger) -> list[tuple[str, int]]:
    return [(row[0], row[4]) for row in ledger.take()["rows"]]


def test_rows_stand_in_the_order_in_which_connections_began() -> None:
    ledger = Ledger()
    first, second, third = (opened(ledger, host) for host in ("a.test", "b.test", "a.test"))
    for record in (third, second, first):
        ledger.close(record)
    assert hosts(ledger) == [("a.test", 2), ("b.test", 1)]


def test_what_was_told_keeps_its_number() -> None:
    ledger = Ledger()
    long_lived = opened(ledger, "a.test")
    assert [row[0] for row in ledger.take([long_lived])["rows"]] == ["a.test"]
    ledger.close(opened(ledger, "b.test"))
    long_lived.down = 5
    ledger.close(long_lived)
    assert hosts(ledger) == [("a.test", 0), ("b.test", 1)]
