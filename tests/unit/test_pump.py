"""What is kept of a box's output, and what that costs the host."""

from __future__ import annotations

import tracemalloc

from kern_sandbox._forkserver.pump import Collector


def test_a_stream_that_comes_in_single_characters_costs_about_what_it_holds() -> None:
    """A box decides how much comes at once."""
    count = 200_000
    tracemalloc.start()
    try:
        collector = Collector(1 << 20)
        for number in range(count):
            collector.feed(b"%02d" % (number % 100))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert collector.content()[:6] == b"000102"
    assert len(collector.content()) == 2 * count
    assert most < 6 * count


def test_what_does_not_fit_is_dropped_and_said() -> None:
    collector = Collector(5)
    collector.feed(b"abc")
    assert not collector.truncated
    collector.feed(b"defg")
    assert (collector.content(), collector.truncated) == (b"abcde", True)
