"""Frames arrive whole or not at all, and hostile bytes cost nothing but themselves."""

from __future__ import annotations

import array
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern_sandbox._forkserver import wire
from support import open_descriptors


@pytest.fixture
def ends() -> object:
    ours, theirs = wire.pair()
    with ours, theirs:
        yield ours, theirs


def test_a_frame_arrives_with_its_descriptors(ends: tuple[socket.socket, socket.socket]) -> None:
    reader, writer = os.pipe()
    wire.send(ends[0], {"a": [1, "é", None]}, [writer])
    os.close(writer)
    frame = wire.receive(ends[1])
    assert frame is not None
    assert frame.body == {"a": [1, "é", None]}
    assert not os.get_inheritable(frame.fds[0])
    os.write(frame.fds[0], b"x")
    os.close(frame.fds[0])
    assert os.read(reader, 9) == b"x"
    os.close(reader)


def test_a_frame_larger_than_a_message_travels_beside_it(ends: tuple[socket.socket, socket.socket]) -> None:
    wire.send(ends[0], {"env": "x" * 3_000_000})
    frame = wire.receive(ends[1])
    assert frame is not None
    assert len(frame.body["env"]) == 3_000_000
    assert frame.fds == []


def test_an_answer_is_whole_however_large_it_is(ends: tuple[socket.socket, socket.socket]) -> None:
    wire.reply(ends[0], {"text": "\U0001f600" * 8000})
    frame = wire.receive(ends[1])
    assert frame is not None
    assert frame.body == {"text": "\U0001f600" * 8000}


def test_a_frame_holds_no_more_than_its_sender_is_given(ends: tuple[socket.socket, socket.socket]) -> None:
    before = open_descriptors()
    for size in (900_000, 1_100_000):
        wire.send(ends[0], {"text": "x" * size})
    assert wire.receive(ends[1], most=wire.SMALL) is not None
    with pytest.raises(ValueError, match="bounded"):
        wire.receive(ends[1], most=wire.SMALL)
    assert not open_descriptors() - before


def test_the_end_of_a_socket_is_none(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    assert wire.receive(ends[1]) is None


@given(st.binary(min_size=1, max_size=300) | st.binary(max_size=200).map(lambda tail: b"J{" + tail))
def test_any_bytes_are_a_frame_or_a_value_error_and_no_descriptor_leaks(data: bytes) -> None:
    ours, theirs = wire.pair()
    with ours, theirs:
        before = open_descriptors()
        ours.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, theirs.fileno().to_bytes(4, "little"))])
        try:
            frame = wire.receive(theirs)
        except ValueError:
            pass
        else:
            assert frame is not None
            assert isinstance(frame.body, dict)
            for fd in frame.fds:
                os.close(fd)
        assert not open_descriptors() - before


def test_a_frame_that_is_nested_too_deeply_leaves_no_descriptor_open() -> None:
    ours, theirs = wire.pair()
    reader, writer = os.pipe()
    before = open_descriptors()
    with ours, theirs:
        theirs.sendmsg([b"J" + b"[" * 50_000], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [reader]))])
        with pytest.raises((ValueError, RecursionError)):
            wire.receive(ours)
        assert not open_descriptors() - before
    os.close(reader)
    os.close(writer)
