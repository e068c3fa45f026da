"""A small compiler, disassembler and simulator for the classic BPF programs that seccomp(2) runs.

A program is bytes: an array of ``struct sock_filter`` (``linux/filter.h``) that reads ``struct seccomp_data``
(``linux/seccomp.h``) and returns one 32-bit value, an `Action` in its upper half and data in its lower half.

Only the loads of the system call number and of the architecture, constant masks and constant comparisons are ever
emitted before an allowing return, so that Linux (5.11 and newer) can prove a plainly allowed call once and then skip
the program for it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Union

__all__ = [
    "ARCH",
    "NR",
    "Action",
    "Arch",
    "Assembler",
    "Instruction",
    "argument",
    "decode",
    "disassemble",
    "encode",
    "errno_return",
    "simulate",
]


class Action(IntEnum):
    """What a program's return value asks for (``SECCOMP_RET_*``; USER_NOTIF since Linux 5.0)."""

    KILL_THREAD = 0x00000000
    TRAP = 0x00030000
    ERRNO = 0x00050000
    USER_NOTIF = 0x7FC00000
    TRACE = 0x7FF00000
    LOG = 0x7FFC0000
    ALLOW = 0x7FFF0000
    KILL_PROCESS = 0x80000000


class Arch(IntEnum):
    """The calling conventions that a 64-bit machine can be entered by (``AUDIT_ARCH_*``, ``linux/audit.h``)."""

    I386 = 0x40000003
    ARM = 0x40000028
    X86_64 = 0xC000003E
    AARCH64 = 0xC00000B7


class Instruction(NamedTuple):
    """One ``struct sock_filter``: operation, offsets of the two branches, constant."""

    code: int
    jt: int
    jf: int
    k: int


NR = 0
"""Offset of the system call number in ``struct seccomp_data``."""

ARCH = 4
"""Offset of the architecture in ``struct seccomp_data``."""

_DATA = struct.Struct("<iIQ6Q")
_SOCK_FILTER = struct.Struct("<HBBI")
_MAX_INSTRUCTIONS = 4096

_LOAD, _AND, _RETURN, _GOTO = 0x20, 0x54, 0x06, 0x05
_TESTS = {"jeq": 0x15, "jgt": 0x25, "jge": 0x35, "jset": 0x45}
_TEST_NAMES = {code: name for name, code in _TESTS.items()}


def argument(index: int, *, high: bool = False) -> int:
    """Return the offset of one 32-bit half of argument ``index`` (0 to 5) in ``struct seccomp_data``."""
    if not 0 <= index < 6:
        raise ValueError(f"a system call has arguments 0 to 5, not {index}")
    return 16 + 8 * index + (4 if high else 0)


def errno_return(errno: int) -> int:
    """Return the program's return value that makes the call fail with ``errno``."""
    return Action.ERRNO | errno


class _Branch(NamedTuple):
    """A comparison whose ways out are labels; an empty label is the next instruction."""

    code: int
    k: int
    yes: str
    no: str


class _Goto(NamedTuple):
    label: str


_Item = Union[Instruction, _Branch, _Goto]


class Assembler:
    """Collects instructions and labels, and lays them out as a program.

    A label is a name that is placed once and may be used before it is placed. Branches may be of any length: where
    the 8-bit offset of a comparison does not reach, it goes by way of an unconditional jump.
    """

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._labels: dict[str, int] = {}
        self._fresh = 0

    def label(self, name: str) -> None:
        """Place the label ``name`` here."""
        if not name or name in self._labels:
            raise ValueError(f"label {name!r} is empty or placed twice")
        self._labels[name] = len(self._items)

    def load(self, offset: int) -> None:
        """Load the 32-bit word at ``offset`` of ``struct seccomp_data``."""
        self._items.append(Instruction(_LOAD, 0, 0, offset))

    def mask(self, bits: int) -> None:
        """Keep only ``bits`` of the loaded word."""
        self._items.append(Instruction(_AND, 0, 0, bits))

    def ret(self, value: int) -> None:
        """End with the return value ``value``."""
        self._items.append(Instruction(_RETURN, 0, 0, value))

    def goto(self, label: str) -> None:
        """Go on at ``label``."""
        self._items.append(_Goto(label))

    def branch(self, test: str, k: int, *, yes: str = "", no: str = "") -> None:
        """Compare the loaded word with ``k``.

        Args:
            test: ``"jeq"`` (equal), ``"jgt"`` (greater), ``"jge"`` (not less) or ``"jset"`` (a common bit); unsigned.
            k: The constant.
            yes: The label to go on at where the test holds; empty for the next instruction.
            no: The label to go on at where it does not; empty for the next instruction.
        """
        self._items.append(_Branch(_TESTS[test], k, yes, no))

    def search(self, starts: Sequence[tuple[int, str]]) -> None:
        """Go on at the label of the range that holds the loaded word, by a balanced binary search.

        Args:
            starts: Range starts with their labels, ascending, the first being 0; a range ends where the next starts.
        """
        numbers = [start for start, _ in starts]
        if not numbers or numbers[0] != 0 or any(a >= b for a, b in zip(numbers, numbers[1:])):
            raise ValueError("range starts must ascend from 0")
        if len(starts) == 1:
            self.goto(starts[0][1])
        else:
            self._search(starts)

    def _search(self, starts: Sequence[tuple[int, str]]) -> None:
        middle = len(starts) // 2
        below, above = starts[:middle], starts[middle:]
        yes = above[0][1] if len(above) == 1 else ""
        no = below[0][1] if len(below) == 1 else ""
        if not yes and not no:
            self._fresh += 1
            yes = f"\0search {self._fresh}"
        self.branch("jge", above[0][0], yes=yes, no=no)
        if len(below) > 1:
            self._search(below)
        if len(above) > 1:
            if yes:
                self.label(yes)
            self._search(above)

    def assemble(self) -> bytes:
        """Lay the program out.

        Raises:
            ValueError: a label is missing or lies behind its use, or Linux would refuse the program.
        """
        long: set[tuple[int, bool]] = set()
        while True:
            places = self._places(long)
            grown = long | self._out_of_reach(places, long)
            if grown == long:
                break
            long = grown
        program: list[Instruction] = []
        for index in range(len(self._items)):
            program += self._emit(index, places, long)
        return encode(program)

    def _places(self, long: set[tuple[int, bool]]) -> list[int]:
        """Where each item starts, and last the length of the program."""
        places = [0]
        for index in range(len(self._items)):
            places.append(places[-1] + 1 + ((index, True) in long) + ((index, False) in long))
        return places

    def _target(self, index: int, label: str, places: list[int]) -> int:
        if not label:
            return places[index + 1]
        if label not in self._labels:
            raise ValueError(f"label {label!r} is used but not placed")
        target = places[self._labels[label]]
        if target <= places[index]:
            raise ValueError(f"label {label!r} lies behind its use; classic BPF only goes forward")
        return target

    def _out_of_reach(self, places: list[int], long: set[tuple[int, bool]]) -> set[tuple[int, bool]]:
        """The ways out whose offset does not fit in 8 bits in this layout."""
        found = set()
        for index, item in enumerate(self._items):
            if not isinstance(item, _Branch):
                continue
            for way, label in ((True, item.yes), (False, item.no)):
                if (index, way) not in long and self._target(index, label, places) - places[index] - 1 > 255:
                    found.add((index, way))
        return found

    def _emit(self, index: int, places: list[int], long: set[tuple[int, bool]]) -> list[Instruction]:
        item, here = self._items[index], places[index]
        if isinstance(item, Instruction):
            return [item]
        if isinstance(item, _Goto):
            return [Instruction(_GOTO, 0, 0, self._target(index, item.label, places) - here - 1)]
        offsets: list[int] = []
        islands: list[Instruction] = []
        for way, label in ((True, item.yes), (False, item.no)):
            target = self._target(index, label, places)
            if (index, way) in long:
                offsets.append(len(islands))
                islands.append(Instruction(_GOTO, 0, 0, target - here - 2 - len(islands)))
            else:
                offsets.append(target - here - 1)
        return [Instruction(item.code, offsets[0], offsets[1], item.k), *islands]


def encode(program: Sequence[Instruction]) -> bytes:
    """Pack instructions, and refuse what Linux would refuse.

    Raises:
        ValueError: the program is not one that Linux accepts.
    """
    _check(program)
    return b"".join(_SOCK_FILTER.pack(*instruction) for instruction in program)


@lru_cache(maxsize=64)
def decode(program: bytes) -> tuple[Instruction, ...]:
    """Unpack a program, and refuse what Linux would refuse.

    Raises:
        ValueError: the bytes are not a program that Linux accepts.
    """
    if len(program) % _SOCK_FILTER.size:
        raise ValueError(f"a program is a multiple of {_SOCK_FILTER.size} bytes, not {len(program)}")
    instructions = tuple(Instruction(*fields) for fields in _SOCK_FILTER.iter_unpack(program))
    _check(instructions)
    return instructions


def _check(program: Sequence[Instruction]) -> None:
    if not 0 < len(program) <= _MAX_INSTRUCTIONS:
        raise ValueError(f"a program has 1 to {_MAX_INSTRUCTIONS} instructions, not {len(program)}")
    for index, instruction in enumerate(program):
        reason = _fault(instruction, len(program) - index - 1)
        if reason:
            raise ValueError(f"instruction {index}: {reason}: {instruction}")
    if program[-1].code != _RETURN:
        raise ValueError("the last instruction does not return")


def _fault(instruction: Instruction, left: int) -> str:
    """Why Linux would refuse ``instruction`` with ``left`` instructions after it; empty where it would not."""
    code, jt, jf, k = instruction
    if code in _TEST_NAMES:
        return "a branch leaves the program" if max(jt, jf) >= left else ""
    if code == _GOTO:
        return "a jump leaves the program" if k >= left else ""
    if code == _LOAD:
        return "a load outside of struct seccomp_data" if k % 4 or k >= _DATA.size else ""
    return "" if code in (_AND, _RETURN) else "an unknown operation"


def disassemble(program: bytes) -> str:
    """Return the program as text, one numbered line per instruction, targets as line numbers.

    Raises:
        ValueError: the bytes are not a program that Linux accepts.
    """
    lines = [f"{index:4}: {_line(index, one)}" for index, one in enumerate(decode(program))]
    return "\n".join(lines) + "\n"


def _line(index: int, instruction: Instruction) -> str:
    code, jt, jf, k = instruction
    if code in _TEST_NAMES:
        return f"{_TEST_NAMES[code]} {k:#x} ? {index + 1 + jt} : {index + 1 + jf}"
    if code == _GOTO:
        return f"goto {index + 1 + k}"
    if code == _LOAD:
        return f"load {_field(k)}"
    if code == _AND:
        return f"and {k:#x}"
    return f"return {_outcome(k)}"


def _field(offset: int) -> str:
    fixed = {NR: "nr", ARCH: "arch", 8: "ip.low", 12: "ip.high"}
    if offset in fixed:
        return fixed[offset]
    return f"args[{(offset - 16) // 8}].{'high' if offset % 8 else 'low'}"


def _outcome(value: int) -> str:
    upper, data = value & 0xFFFF0000, value & 0xFFFF
    if upper not in set(Action):
        return f"{value:#x}"
    return f"{Action(upper).name}({data})" if data else Action(upper).name


def simulate(program: bytes, *, nr: int, arch: int, args: Sequence[int] = (0,) * 6, ip: int = 0) -> int:
    """Return what the program returns for one system call, as Linux would compute it.

    Args:
        program: The program.
        nr: The system call number.
        arch: The calling convention, an `Arch`.
        args: The six arguments, each as the 64-bit register holds it.
        ip: The address of the instruction that makes the call.

    Raises:
        ValueError: the bytes are not a program that Linux accepts.
    """
    instructions = decode(program)
    words = [word & 0xFFFFFFFFFFFFFFFF for word in (ip, *args)]
    signed_nr = (nr & 0xFFFFFFFF) - ((nr & 0x80000000) << 1)
    data = _DATA.pack(signed_nr, arch, *words)
    accumulator = at = 0
    while True:
        code, jt, jf, k = instructions[at]
        at += 1
        if code == _RETURN:
            return k
        if code == _LOAD:
            accumulator = int.from_bytes(data[k : k + 4], "little")
        elif code == _AND:
            accumulator &= k
        elif code == _GOTO:
            at += k
        else:
            at += jt if _holds(code, accumulator, k) else jf


def _holds(code: int, accumulator: int, k: int) -> bool:
    name = _TEST_NAMES[code]
    if name == "jeq":
        return accumulator == k
    if name == "jgt":
        return accumulator > k
    if name == "jge":
        return accumulator >= k
    return bool(accumulator & k)
