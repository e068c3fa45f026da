"""What is kept for conversations is bounded, and never taken from one that is using it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from kern_sandbox import SessionClosed

from langchain_kern_sandbox._threads import Threads, thread_id


class Thing:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def use(threads: Threads[Thing], key: str) -> tuple[Thing, bool]:
    found = threads.acquire(key)
    threads.release(key)
    return found


def test_a_conversation_has_the_same_one_each_time() -> None:
    threads = Threads(Thing, 2)
    assert use(threads, "a")[0] is use(threads, "a")[0]
    assert use(threads, "a")[0] is not use(threads, "b")[0]


def test_the_one_that_was_used_the_longest_ago_makes_room_and_its_conversation_is_told_once() -> None:
    threads = Threads(Thing, 2)
    first, _ = use(threads, "a")
    second, _ = use(threads, "b")
    use(threads, "a")
    use(threads, "c")
    assert (first.closed, second.closed) == (0, 1)
    assert use(threads, "b") == (threads.acquire("b")[0], True)
    assert use(threads, "b")[1] is False


def test_one_that_is_in_use_stays_though_there_are_too_many() -> None:
    threads = Threads(Thing, 1)
    busy, _ = threads.acquire("a")
    use(threads, "b")
    assert busy.closed == 0
    threads.release("a")
    use(threads, "c")
    assert busy.closed == 1
    assert len(threads) == 1


def test_closing_closes_all_once_and_nothing_is_made_after_it() -> None:
    threads = Threads(Thing, 4)
    things = [use(threads, key)[0] for key in "abc"]
    threads.forget("a")
    threads.forget("nobody")
    threads.close()
    threads.close()
    assert [thing.closed for thing in things] == [1, 1, 1]
    with pytest.raises(SessionClosed):
        threads.acquire("a")


async def test_a_wait_that_is_cancelled_keeps_nothing() -> None:
    began, go = threading.Event(), threading.Event()

    def made() -> Thing:
        began.set()
        assert go.wait(30)
        return Thing()

    threads = Threads(made, 1)
    waiting = asyncio.create_task(threads.acquired("a"))
    await asyncio.to_thread(began.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    thing, _ = await threads.acquired("a")
    threads.release("a")
    use(threads, "b")
    assert thing.closed == 1


def test_many_at_once_share_one() -> None:
    threads, found = Threads(Thing, 4), []
    running = [threading.Thread(target=lambda: found.append(use(threads, "a")[0])) for _ in range(16)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize(
    ("config", "key"),
    [(None, ""), ({}, ""), ({"configurable": {}}, ""), ({"configurable": {"thread_id": 7}}, "7")],
)
def test_the_conversation_is_that_of_the_config(config: dict | None, key: str) -> None:
    assert thread_id(config) == key
