"""The compiler, disassembler and simulator of seccomp programs."""

from __future__ import annotations

import bisect
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern_sandbox._linux import bpf
from kern_sandbox._linux.bpf import Action, Arch, Assembler, Instruction

WORD = st.integers(0, 0xFFFFFFFF)
RETURN_ALLOW = Instruction(0x06, 0, 0, Action.ALLOW)


def chosen(program: bytes, nr: int, **rest: int) -> int:
    """The lower half of what the program returns."""
    return bpf.simulate(program, nr=nr, arch=rest.get("arch", Arch.X86_64)) & 0xFFFF


def numbered(code: Assembler, label: str, number: int) -> None:
    """Place a label whose return value carries ``number``."""
    code.label(label)
    code.ret(Action.ERRNO | number)


def parse(text: str) -> list[Instruction]:
    """Read a disassembly back, knowing only what its reader knows."""
    tests = {"jeq": 0x15, "jgt": 0x25, "jge": 0x35, "jset": 0x45}
    names = {"nr": 0, "arch": 4, "ip.low": 8, "ip.high": 12}
    names.update({f"args[{n}].{half}": 16 + 8 * n + 4 * (half == "high") for n in range(6) for half in ("low", "high")})
    found = []
    for index, line in enumerate(text.splitlines()):
        number, rest = line.split(":", 1)
        assert int(number) == index
        words = rest.split()
        if words[0] in tests:
            jt, jf = int(words[3]) - index - 1, int(words[5]) - index - 1
            found.append(Instruction(tests[words[0]], jt, jf, int(words[1], 16)))
        elif words[0] == "goto":
            found.append(Instruction(0x05, 0, 0, int(words[1]) - index - 1))
        elif words[0] == "load":
            found.append(Instruction(0x20, 0, 0, names[words[1]]))
        elif words[0] == "and":
            found.append(Instruction(0x54, 0, 0, int(words[1], 16)))
        else:
            found.append(Instruction(0x06, 0, 0, outcome(words[1])))
    return found


def outcome(word: str) -> int:
    """Read ``ERRNO(1)``, ``ALLOW`` or a bare number."""
    match = re.fullmatch(r"([A-Z_]+)(?:\((\d+)\))?", word)
    return Action[match[1]] | int(match[2] or 0) if match else int(word, 16)


@st.composite
def programs(draw: st.DrawFn) -> list[Instruction]:
    """Any program that Linux accepts, made of the operations that this compiler knows."""
    size = draw(st.integers(0, 40))
    program = []
    for left in range(size, 0, -1):
        kind = draw(st.sampled_from(["branch", "goto", "load", "and", "return"]))
        if kind == "branch":
            ways = draw(st.tuples(st.integers(0, left - 1), st.integers(0, left - 1)))
            program.append(Instruction(draw(st.sampled_from([0x15, 0x25, 0x35, 0x45])), *ways, draw(WORD)))
        elif kind == "goto":
            program.append(Instruction(0x05, 0, 0, draw(st.integers(0, left - 1))))
        elif kind == "load":
            program.append(Instruction(0x20, 0, 0, 4 * draw(st.integers(0, 15))))
        else:
            program.append(Instruction(0x54 if kind == "and" else 0x06, 0, 0, draw(WORD)))
    return [*program, RETURN_ALLOW]


@given(programs())
def test_a_disassembly_says_everything_that_the_program_holds(program: list[Instruction]) -> None:
    assert parse(bpf.disassemble(bpf.encode(program))) == program


@given(programs())
def test_decoding_undoes_encoding(program: list[Instruction]) -> None:
    assert list(bpf.decode(bpf.encode(program))) == program


def test_a_disassembly_reads_as_written() -> None:
    code = Assembler()
    code.load(bpf.ARCH)
    code.branch("jeq", Arch.X86_64, no="out")
    code.load(bpf.argument(1, high=True))
    code.mask(0xF0)
    code.branch("jset", 0x10, yes="out")
    code.ret(Action.ALLOW)
    code.label("out")
    code.ret(bpf.errno_return(38))
    assert bpf.disassemble(code.assemble()).splitlines() == [
        "   0: load arch",
        "   1: jeq 0xc000003e ? 2 : 6",
        "   2: load args[1].high",
        "   3: and 0xf0",
        "   4: jset 0x10 ? 6 : 5",
        "   5: return ALLOW",
        "   6: return ERRNO(38)",
    ]


@settings(deadline=None, max_examples=60)
@given(st.sets(WORD.filter(bool), max_size=700), st.lists(WORD, max_size=20))
def test_a_search_finds_the_range_of_every_word(starts: set[int], words: list[int]) -> None:
    """Whatever the number of ranges, and so whatever the distance of the jumps."""
    ascending = [0, *sorted(starts)]
    code = Assembler()
    code.load(bpf.NR)
    code.search([(start, f"range {index}") for index, start in enumerate(ascending)])
    for index in range(len(ascending)):
        numbered(code, f"range {index}", index)
    program = code.assemble()
    edges = [edge & 0xFFFFFFFF for start in ascending[:40] for edge in (start - 1, start, start + 1)]
    for word in [*words, *edges]:
        assert chosen(program, word) == bisect.bisect_right(ascending, word) - 1


@pytest.mark.parametrize("starts", [[], [(1, "a")], [(0, "a"), (5, "b"), (5, "a")], [(0, "a"), (5, "b"), (4, "a")]])
def test_a_search_refuses_ranges_that_do_not_ascend_from_zero(starts: list[tuple[int, str]]) -> None:
    with pytest.raises(ValueError, match="ascend from 0"):
        Assembler().search(starts)


@pytest.mark.parametrize("before_yes", [0, 1, 253, 254, 255, 256, 257, 300])
@pytest.mark.parametrize("before_no", [0, 1, 253, 254, 255, 256, 257, 300])
def test_a_branch_reaches_its_labels_at_any_distance(before_yes: int, before_no: int) -> None:
    code = Assembler()
    code.load(bpf.NR)
    code.branch("jeq", 7, yes="yes", no="no")
    for _ in range(before_yes):
        code.ret(Action.TRAP)
    numbered(code, "yes", 1)
    for _ in range(before_no):
        code.ret(Action.TRAP)
    numbered(code, "no", 2)
    program = code.assemble()
    assert (chosen(program, 7), chosen(program, 8)) == (1, 2)


@given(WORD, WORD)
def test_the_four_tests_compare_unsigned_words(word: int, k: int) -> None:
    truths = {"jeq": word == k, "jgt": word > k, "jge": word >= k, "jset": bool(word & k)}
    for test, truth in truths.items():
        code = Assembler()
        code.load(bpf.NR)
        code.branch(test, k, yes="yes")
        code.ret(Action.ERRNO)
        numbered(code, "yes", 1)
        assert chosen(code.assemble(), word) == truth


@given(st.integers(0, 5), st.booleans(), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_a_load_reads_the_half_of_the_argument_that_it_names(index: int, high: bool, args: list[int]) -> None:
    half = args[index] >> 32 if high else args[index] & 0xFFFFFFFF
    code = Assembler()
    code.load(bpf.argument(index, high=high))
    code.branch("jeq", half, no="other")
    code.ret(Action.ALLOW)
    code.label("other")
    code.ret(Action.TRAP)
    assert bpf.simulate(code.assemble(), nr=0, arch=Arch.X86_64, args=args) == Action.ALLOW


@pytest.mark.parametrize("index", [-1, 6])
def test_a_call_has_six_arguments(index: int) -> None:
    with pytest.raises(ValueError, match="arguments 0 to 5"):
        bpf.argument(index)


def test_a_label_must_be_placed() -> None:
    code = Assembler()
    code.goto("nowhere")
    code.ret(Action.ALLOW)
    with pytest.raises(ValueError, match="'nowhere' is used but not placed"):
        code.assemble()


def test_a_label_must_be_placed_after_its_use() -> None:
    code = Assembler()
    code.label("back")
    code.ret(Action.ALLOW)
    code.goto("back")
    code.ret(Action.ALLOW)
    with pytest.raises(ValueError, match="lies behind its use"):
        code.assemble()


def test_a_label_is_placed_once() -> None:
    code = Assembler()
    code.label("here")
    with pytest.raises(ValueError, match="placed twice"):
        code.label("here")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ([], "1 to 4096 instructions, not 0"),
        ([RETURN_ALLOW] * 4097, "not 4097"),
        ([Instruction(0x99, 0, 0, 0), RETURN_ALLOW], "unknown operation"),
        ([Instruction(0x15, 1, 0, 0), RETURN_ALLOW], "branch leaves the program"),
        ([Instruction(0x15, 0, 1, 0), RETURN_ALLOW], "branch leaves the program"),
        ([Instruction(0x05, 0, 0, 1), RETURN_ALLOW], "jump leaves the program"),
        ([Instruction(0x20, 0, 0, 2), RETURN_ALLOW], "load outside"),
        ([Instruction(0x20, 0, 0, 64), RETURN_ALLOW], "load outside"),
        ([Instruction(0x20, 0, 0, 0)], "last instruction does not return"),
    ],
)
def test_what_linux_would_refuse_is_refused(program: list[Instruction], reason: str) -> None:
    raw = b"".join(bpf._SOCK_FILTER.pack(*instruction) for instruction in program)
    for attempt in (lambda: bpf.encode(program), lambda: bpf.simulate(raw, nr=0, arch=0), lambda: bpf.disassemble(raw)):
        with pytest.raises(ValueError, match=reason):
            attempt()


def test_half_an_instruction_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 8 bytes"):
        bpf.simulate(b"\x06\0\0\0", nr=0, arch=0)
