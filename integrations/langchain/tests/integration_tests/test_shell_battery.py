"""One session of commands, given to an agent's shell in a box and on the host: line by line they say the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from langchain_kern_sandbox import kern_execution_policy
from scripted import HELLO, Host, shell, shell_agent, told

if TYPE_CHECKING:
    from pathlib import Path

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "GREETING": "hello there", "USER": "me"}

BATTERY = [
    "echo hi",
    "echo hi; echo err >&2",
    "pwd",
    "true",
    "false",
    "(exit 42)",
    "echo $?",
    "nosuchcommand",
    "ls /nosuchdir",
    "cat nosuchfile",
    "cd /nosuchdir",
    "mkdir -p a/b && cd a/b && pwd",
    "pwd",
    "cd - >/dev/null && pwd",
    "X=1; export Y=2",
    "echo $X $Y; bash -c 'echo [$X] [$Y]'",
    "echo $GREETING",
    "echo \"$GREETING\" '$GREETING'",
    "f() { echo f $1; return 3; }",
    "f x",
    "alias | wc -l",
    "printf '%s\\n' one two three > t.txt; cat t.txt",
    "wc -l < t.txt",
    "sort -r t.txt | head -2",
    "grep -n tw t.txt",
    "grep nothing t.txt",
    "sed -i s/two/zwei/ t.txt && cat t.txt",
    "for i in 1 2 3; do echo $i; done",
    "i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo -n; echo $i; done",
    "if [ -f t.txt ]; then echo yes; else echo no; fi",
    "case abc in a*) echo starts;; *) echo not;; esac",
    "cat <<'EOF'\n$X and `date`\nEOF",
    "cat <<EOF > u.txt\n$X\nEOF\ncat u.txt",
    "echo one; echo two\necho three",
    "echo 'a\nb'",
    "echo ünïcödé 日本語 🙂",
    "python3 -c 'print(6*7)'",
    "python3 -c 'import sys; sys.exit(5)'",
    "python3 -c 'import sys; print(1); print(2, file=sys.stderr)'",
    "python3 - <<'EOF'\nprint('from a heredoc')\nEOF",
    "echo 1 2 3 | { read a b c; echo $c; }",
    "diff <(echo a) <(echo b)",
    "arr=(x y z); echo ${arr[1]} ${#arr[@]}",
    "echo ${Y:-none} ${NOPE:-none}",
    "set -- p q r; echo $# $2",
    "trap 'echo trapped' USR1; kill -USR1 $$; echo after",
    "sleep 0.01 & wait; echo waited",
    "echo out > log; echo more >> log; wc -c < log",
    "ls -1",
    "seq 1 150",
    "echo",
    "echo '  indented  '",
    "echo -e 'tab\\there'",
    "umask 027; umask",
    "type cd",
    "echo $((2**10)) $((7 % 3))",
    "echo x | tee v.txt | tr x y",
    "find . -name '*.txt' | sort",
    "[ 1 -eq 2 ]",
    "ln -s t.txt link; readlink link",
    "test -w . && echo writable",
    "exec 5> fd5; echo five >&5; exec 5>&-; cat fd5",
]
"""Each ends with the end of a line, reads nothing from the session and does not end the shell: the host can do them."""


class Line(NamedTuple):
    """What a model reads of one command."""

    status: str
    out: list[str]
    err: list[str]


def session(policy: Any, workspace: Path) -> list[Line]:
    """The whole battery in one run of an agent."""
    agent = shell_agent(policy, *map(shell, BATTERY), workspace_root=workspace, env=ENV)
    state = agent.invoke(HELLO, {"recursion_limit": 10 * len(BATTERY)})
    return [plain(message, str(workspace)) for message in told(state)]


def plain(message: Any, workspace: str) -> Line:
    """Without what has to differ: where the workspace is, and the number of a line in bash's own complaints."""
    text = re.sub(r"bash: (eval: )?line \d+: ", "bash: ", message.content.replace(workspace, "/workspace"))
    lines = text.split("\n")
    return Line(
        message.status,
        [line for line in lines if not line.startswith("[stderr]")],
        [line for line in lines if line.startswith("[stderr]")],
    )


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Line], list[Line]]:
    boxed = session(kern_execution_policy(), tmp_path_factory.mktemp("boxed"))
    host = Host()
    try:
        return boxed, session(host, tmp_path_factory.mktemp("host"))
    finally:
        host.close()


def test_the_battery_is_long_enough_and_every_command_was_answered(said: tuple[list[Line], list[Line]]) -> None:
    assert len(BATTERY) >= 40
    assert [len(each) for each in said] == [len(BATTERY)] * 2


@pytest.mark.parametrize("at", range(len(BATTERY)), ids=lambda at: BATTERY[at][:30].replace("\n", " "))
def test_a_command_says_the_same_in_a_box_as_on_the_host(said: tuple[list[Line], list[Line]], at: int) -> None:
    boxed, host = said
    assert boxed[at] == host[at]
