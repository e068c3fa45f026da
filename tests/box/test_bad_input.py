"""What is not accepted is refused before a box is made, with the option, the value and what is accepted."""

from __future__ import annotations

import pytest

import kern_sandbox as kern


class Odd:
    """A value that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError


BAD_OPTIONS = [
    ("memory_mb", ["512", 512.0, 15, 0, -1, True, 1 << 40, float("nan"), [], Odd()]),
    ("cpus", ["1", 0, -1, float("nan"), float("inf"), True, [], 10**6, Odd()]),
    ("pids", [None, "256", 0, -1, 1.5, True, 1 << 40]),
    ("timeout_s", [None, "5", 0, -1, float("nan"), float("inf"), 10**12, True, [], Odd()]),
    ("network", [None, 1, 0, "yes", "host"]),
    ("tmpfs", ["512m", ["/tmp"], {"/tmp": 512}, {"/tmp": "512"}, {"/tmp": "0m"}, {"/tmp": "-1m"}, {"/tmp": "1.5g"}]),
    ("tmpfs", [{"tmp": "1m"}, {"/": "1m"}, {"/etc": "1m"}, {"/workspace": "1m"}, {"/tmp/../etc": "1m"}, {1: "1m"}]),
    ("tmpfs", [{"/tmp": "2m", "/tmp/a": "1m"}, {"/data/a/b": "1m", "/data/a": "1m"}]),
    ("tmpfs", [{"/tmp": "513m"}, {"/tmp": "1g"}, {"/tmp": None}, {"/tmp": "m"}, {"/tmp": "\u0661m"}, {"/tmp": ""}]),
    ("env", ["A=b", [("A", "b")], {"A": 1}, {"A": None}, {1: "b"}, {"": "b"}, {"A=B": "c"}, {"A\0": "b"}, {"A": "\0"}]),
    ("env", [{"A": "x" * (1 << 21)}, {"A": "\ud800"}, {"\ud800": "x"}, {"A": "x" * 200_000}]),
    ("max_output_bytes", [None, "1m", 0, -1, 1.5, True, 1 << 40]),
    ("require_limits", [None, 1, "yes"]),
    ("cap_drop", [None, 5, "ALL", ("NET_RAW",), {"ALL"}, Odd()]),
    ("protect", ["/workspace/x", ["x"], [["/workspace/x"]], ["/workspace/../x"], {"/workspace/x": 1}, [1], 1]),
    ("track_files", [None, 1, "no"]),
    ("workspace", ["", 1, b"\0", "a\0b", ["x"]]),
]

GOOD_OPTIONS = [
    {"memory_mb": None}, {"memory_mb": 16}, {"cpus": None}, {"cpus": 1}, {"cpus": 0.5}, {"pids": 8}, {"timeout_s": 60},
    {"timeout_s": 59.5}, {"tmpfs": None}, {"tmpfs": {}}, {"tmpfs": {"/tmp": "1m", "/scratch/x": "64K"}}, {"env": None},
    {"env": {"A": ""}}, {"env": {"A": "gr\u00fc\u00dfe", "\u00fc": "x" * 100_000}}, {"max_output_bytes": 100},
    {"workspace": None}, {"tmpfs": {"/data/a": "1m", "/data/ab": "1m"}}, {"protect": ["/workspace/x"]},
]  # fmt: skip


@pytest.mark.parametrize(("option", "values"), BAD_OPTIONS)
def test_an_option_with_a_wrong_type_or_value_names_itself_and_what_is_accepted(option, values):
    for value in values:
        with pytest.raises(kern.SpecError) as raised:
            kern.Sandbox(**{option: value})
        said = str(raised.value)
        assert option in said, (value, said)
        assert len(said) < 1000
        assert isinstance(raised.value, (ValueError, kern.SandboxError))


@pytest.mark.parametrize("good", GOOD_OPTIONS, ids=str)
def test_a_good_option_is_accepted_and_runs(make, good):
    assert make(**good).run(["echo", "ran"]).stdout == "ran\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout_s": -3}, ["timeout_s", "-3", "above 0"]),
        ({"memory_mb": "many"}, ["memory_mb", "'many'", "from 16 to"]),
        ({"tmpfs": {"/tmp": "512"}}, ["tmpfs", "/tmp", "'512'", "unit"]),
        ({"tmpfs": {"/tmp": "600m"}}, ["tmpfs", "/tmp", "600m", "memory_mb=512"]),
        ({"tmpfs": {"/tmp": "2m", "/tmp/a": "1m"}}, ["'/tmp/a' below '/tmp'", "leave one of them out"]),
        ({"env": {"A=B": "c"}}, ["env", "'A=B'", "'='"]),
        ({"env": {"A": 1}}, ["env['A']", "of type int", "a str"]),
        ({"protect": ["x"]}, ["protect=['x']", "absolute"]),
        ({"egress_allow": ["*"]}, ["egress_allow", "'*'", "network=True"]),
        ({"mounts": {"/srv/.ssh": "/a"}}, [".ssh", "choose a directory without"]),
        ({"network": "host"}, ["network", "'host'", "True or False"]),
        ({"cap_drop": 5, "user": 1000}, ["cap_drop", "5", '("ALL",)']),
        ({"cap_drop": 5, "security_profile": "untrusted"}, ["cap_drop", "5", '("ALL",)']),
    ],
)
def test_the_message_has_the_option_the_value_and_what_is_accepted(options, words):
    with pytest.raises(kern.SpecError) as raised:
        kern.Sandbox(**options)
    assert [word for word in words if word not in str(raised.value)] == [], str(raised.value)


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises((kern.SpecError, TypeError), match="memory"):
        kern.run_code("1", memory=512)


def test_devices_come_by_profiles_only_where_they_are_vetted():
    with pytest.raises(kern.SpecError, match=r"unknown option devices.*profiles="):
        kern.run_code("1", devices=["kmsg"])
    with pytest.raises(kern.SpecError, match="unknown option device: accepted are workspace, profiles, ") as raised:
        kern.run_code("1", device=["kmsg"])
    assert "devices" not in str(raised.value)
    assert kern.run_code("print(1)", profiles=None).stdout == "1\n"


def test_a_workspace_that_is_no_directory_is_refused_with_its_path(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(kern.WorkspaceError, match=str(path)):
            kern.Sandbox(workspace=path)


@pytest.mark.parametrize("language", ["ruby", "Python", "", None, 1, ["python"], b"python", Odd()])
def test_an_unknown_language_is_refused_with_those_that_are_known(sandbox, language):
    with pytest.raises(kern.SpecError, match=r"language=.*python, bash, sh, node"):
        sandbox.run_code("1", language)


@pytest.mark.parametrize("code", [None, 1, b"print(1)", ["print(1)"]])
def test_code_that_is_no_text_is_refused(sandbox, code):
    with pytest.raises(kern.SpecError, match="code="):
        sandbox.run_code(code)


def test_odd_but_valid_code_is_the_codes_own_matter(sandbox):
    assert sandbox.run_code("").success
    assert sandbox.run_code("\n\n# nothing").success
    assert sandbox.run_code("print(1)\0").fault is None
    assert sandbox.run_code("\ufeffprint('bom')").stdout == "bom\n"
    assert sandbox.run_code("print(1)\r\nprint(2)\r\n").stdout == "1\n2\n"
    assert sandbox.run_code("x = '" + "y" * 3_000_000 + "'\nprint(len(x))").stdout == "3000000\n"


@pytest.mark.parametrize("verb", ["run", "run_code", "spawn"])
@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 10**12, "5", True, [], Odd()])
def test_every_verb_refuses_a_timeout_that_is_not_finite_and_above_zero(sandbox, verb, timeout_s):
    what = "1" if verb == "run_code" else ["true"]
    with pytest.raises(kern.SpecError, match="timeout_s"):
        getattr(sandbox, verb)(what, timeout_s=timeout_s)


@pytest.mark.parametrize("verb", ["run", "run_code"])
def test_a_tiny_timeout_is_a_timeout_and_none_is_the_sandboxs(sandbox, verb):
    what = "while True: pass" if verb == "run_code" else ["sleep", "1000"]
    assert getattr(sandbox, verb)(what, timeout_s=1e-9).fault.type == "timeout"
    assert getattr(sandbox, verb)("1" if verb == "run_code" else ["true"], timeout_s=None).success


BAD_ARGV = ["ls -l", b"ls", [], (), None, 1, [1], ["ls", None], [b"ls"], [""], ["a\0b"], ["ls", "\0"], {"ls"}, Odd()]


@pytest.mark.parametrize("verb", ["run", "spawn"])
@pytest.mark.parametrize("argv", BAD_ARGV, ids=lambda argv: type(argv).__name__)
def test_a_program_that_is_no_list_of_text_is_refused(sandbox, verb, argv):
    with pytest.raises(kern.SpecError, match="argv"):
        getattr(sandbox, verb)(argv)


def test_a_shell_string_is_refused_with_the_way_to_say_it(sandbox):
    with pytest.raises(kern.SpecError, match=r'\["sh", "-c", '):
        sandbox.run("ls | wc")


@pytest.mark.parametrize("argv", [["echo", "\ud800"], ["\ud800"]])
def test_an_argument_that_no_program_can_be_given_is_refused(sandbox, argv):
    """A lone surrogate has no bytes; surrogate escapes stand for bytes and go through."""
    with pytest.raises(kern.SpecError, match="argv"):
        sandbox.run(argv)
    assert sandbox.run(["printf", "\udcff"]).stdout_bytes == b"\xff"


@pytest.mark.parametrize("size", [200_000, 70 << 20])
def test_arguments_larger_than_linux_takes_are_refused_and_cost_nobody_anything(sandbox, size):
    """Linux takes 128 KiB for one argument; the box is not to blame, and other calls go on."""
    sandbox.write_file("precious", "data")
    with pytest.raises(kern.SpecError, match="argv"):
        sandbox.run(["true", "x" * size])
    assert sandbox.run(["cat", "precious"]).stdout == "data"
    assert sandbox.run(["true", "x" * 100_000]).success


@pytest.mark.parametrize("env", [{"A": "\ud800"}, {"A": "x" * 200_000}, {"A": 1}, {"A=": "b"}, "A=b", {"A": "\0"}])
@pytest.mark.parametrize("verb", ["run", "run_code", "spawn"])
def test_every_verb_refuses_variables_that_no_program_can_be_given(sandbox, verb, env):
    with pytest.raises(kern.SpecError, match="env"):
        getattr(sandbox, verb)("1" if verb == "run_code" else ["true"], env=env)


@pytest.mark.parametrize("cwd", ["tmp", "", "./x", b"/tmp", 1, "/a\0b"])
def test_a_directory_that_is_no_absolute_path_is_refused(sandbox, cwd):
    for verb in (sandbox.run, sandbox.spawn):
        with pytest.raises(kern.SpecError, match="cwd"):
            verb(["pwd"], cwd=cwd)


@pytest.mark.parametrize("stdin", [1, ["x"], object(), "\ud800"])
def test_standard_input_that_is_neither_text_nor_bytes_is_refused(sandbox, stdin):
    with pytest.raises(kern.SpecError, match="stdin"):
        sandbox.run(["cat"], stdin=stdin)
    assert sandbox.run(["cat"], stdin=bytearray(b"x")).stdout == "x"


@pytest.mark.parametrize("name", ["on_stdout", "on_stderr"])
def test_a_callback_that_cannot_be_called_is_refused(sandbox, name):
    with pytest.raises(kern.SpecError, match=name):
        sandbox.run(["true"], **{name: "print"})


@pytest.mark.parametrize("number", [0, -1, 65, 1000, "TERM", None, 1.5, []])
def test_a_signal_that_does_not_exist_is_refused(sandbox, number):
    with sandbox.spawn(["cat"]) as process, pytest.raises(kern.SpecError, match="signal"):
        process.send_signal(number)


def test_a_refusal_leaves_the_sandbox_as_it_was(sandbox):
    for bad in (lambda: sandbox.run("x"), lambda: sandbox.run_code("1", "ruby"), lambda: sandbox.run(["x"], cwd="x")):
        with pytest.raises(kern.SpecError):
            bad()
    assert sandbox.run(["echo", "on"]).stdout == "on\n"


def test_a_snippet_that_is_too_large_is_refused_with_the_way_out(sandbox):
    with pytest.raises(kern.SpecError, match="Write a file to the workspace"):
        sandbox.run_code("#" * 5_000_000)
    assert sandbox.run_code("'" + "\U0001f600" * 3_900_000 + "'; print('wide')").stdout == "wide\n"
