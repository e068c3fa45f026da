"""The pi extension with the real pi, in each of its modes: what a model gets, and what the host keeps."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

from integrations.pi_help import KEY, VERSIONS, Rpc, Terminal, Tree, User, install, model
from support import REPO, need_boxes

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = "bash,read,write,edit,grep,find,ls"
pytestmark = pytest.mark.timeout(400)  # the first of them waits for npm
both = pytest.mark.parametrize("version", list(VERSIONS))
BEGUN, LAST = f"600.{os.getpid()}", f"601.{os.getpid()}"
"""How long commands sleep, so that the host finds this test's."""


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return install(shared / "pi-npm")


@pytest.fixture
def user(tmp_path: Path, tree: Tree) -> User:
    need_boxes()
    return User(tmp_path / "home", tree)


def eventually(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 100
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true", pytrace=False)
        time.sleep(0.05)
    return value


def running(marker: str) -> list[str]:
    """Processes of this host with ``marker`` in their arguments."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in words.split(b"\0"):
            found.append(name)
    return found


def png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


# --- what needs no box ------------------------------------------------------------------------------------------


@both
def test_the_sources_are_well_typed_for_this_version(tree: Tree, version: str, tmp_path: Path) -> None:
    paths = {"@mariozechner/pi-coding-agent": [f"{tree.pi(version)}/dist/index.d.ts"]}
    settings = {
        "extends": str(REPO / "integrations/pi/tsconfig.json"),
        "compilerOptions": {"paths": paths, "typeRoots": [str(tree.root / "node_modules/@types")]},
        "include": [str(tree.extension / "src")],
    }
    (tree.root / f"tsconfig.{version}.json").write_text(json.dumps(settings))
    tsc = [str(tree.node), str(tree.root / "node_modules/typescript/bin/tsc"), "-p", f"tsconfig.{version}.json"]
    done = subprocess.run(tsc, cwd=tree.root, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_parts_that_need_neither_pi_nor_a_box(tree: Tree) -> None:
    argv = [str(tree.node), "--test", "--test-reporter=tap", str(REPO / "integrations/pi/test/units.test.ts")]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "# fail 0" in done.stdout
    assert "# tests 0" not in done.stdout


# --- tools ------------------------------------------------------------------------------------------------------


@both
def test_every_tool_works_on_the_project(user: User, version: str) -> None:
    (user.project / "a.txt").write_text("hello\nneedle\n")
    (user.project / "red.png").write_bytes(png())
    script = [
        [("bash", {"command": "hostname; pwd; echo key=[$SECRET_API_KEY]; echo $LANG; exit 3"})],
        [("read", {"path": "a.txt"}), ("read", {"path": "red.png"}), ("ls", {})],
        [("write", {"path": "sub/b.txt", "content": "written\n"})],
        [("edit", {"path": str(user.project / "a.txt"), "edits": [{"oldText": "hello", "newText": "bye"}]})],
        [("grep", {"pattern": "need.e"}), ("find", {"pattern": "*.txt"})],
        [("bash", {"command": "echo kept > ~/note; echo x > /tmp/t 2>/dev/null"}), ("read", {"path": "/etc/hostname"})],
        [("read", {"path": "~/note"}), ("bash", {"command": "seq 3000"})],
        [("bash", {"command": "tail -n 1 /workspace/output/command-1.log; exec sleep 60", "timeout": 3})],
        [("read", {"path": str(user.agent / "skills/s/SKILL.md")})],
        [("read", {"path": f"{user.tree.pi(version)}/README.md", "limit": 3})],
    ]
    (user.agent / "skills/s").mkdir(parents=True)
    (user.agent / "skills/s/SKILL.md").write_text("---\nname: s\ndescription: d\n---\nA skill.\n")
    with model(script) as server:
        ran = user.run(version, server, "--mode", "json", "--tools", TOOLS, "go")
        said, images = server.answers(), server.images()
    assert ran.status == 0, ran.stderr
    assert said[0].startswith(f"sandbox\n{user.project}\nkey=[]\nC.UTF-8\n")
    assert "exited with code 3" in said[0]
    assert said[1].startswith("hello\nneedle")
    assert "image/png" in said[2]
    assert said[3].split("\n")[-2:] == ["a.txt", "red.png"]
    assert "sub/b.txt" in said[4]
    assert "Successfully replaced" in said[5]
    assert said[6:8] == ["a.txt:2: needle", "a.txt\nsub/b.txt"]
    assert said[9].startswith("sandbox")
    assert said[10].startswith("kept")
    assert "all of it is in /workspace/output/command-1.log" in said[11]
    assert said[11].rstrip().endswith("3000")
    assert said[12].startswith("3000\n")
    assert "timed out after 3 seconds" in said[12]
    assert "A skill." in said[13]
    assert "ENOENT" not in said[14]
    assert (user.project / "a.txt").read_text() == "bye\nneedle\n"
    assert (user.project / "sub/b.txt").stat().st_uid == os.geteuid()
    assert {path.name for path in user.project.iterdir()} == {"a.txt", "red.png", "sub"}
    ended = [event for event in ran.events if event["type"] == "tool_execution_end"]
    assert len(ended) == 15
    assert images == 1


@both
def test_nothing_that_a_model_asks_for_reaches_the_host(user: User, version: str) -> None:
    canary, project = user.canary, user.project
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "out").symlink_to(canary)
    before = (project / ".git/config").read_text()
    plant = [
        "mkdir -p .pi/extensions && echo 'x' > .pi/extensions/x.ts", "echo x > .git/hooks/pre-commit",
        "echo x >> .git/config", "echo ../evil > .git/commondir", "mv .git g", "mkdir -p .agents/skills/x",
        "ln -s / root", f"ln -sf {canary} AGENTS.md", "ln -s loop loop",
    ]  # fmt: skip
    script = [
        [("bash", {"command": "; ".join(plant) + f"; cat {canary} {user.agent}/models.json; ls {user.home}"})],
        [("read", {"path": str(canary)}), ("read", {"path": "out"}), ("read", {"path": "~/canary"})],
        [("write", {"path": str(canary), "content": "x"}), ("write", {"path": "out", "content": "x"})],
        [("edit", {"path": "out", "edits": [{"oldText": "host", "newText": "box"}]})],
        [("write", {"path": ".pi/extensions/y.ts", "content": "x"}), ("write", {"path": "loop", "content": "x"})],
        [("write", {"path": "root" + str(project) + "/.git/hooks/y", "content": "x"})],
        [("grep", {"pattern": "own", "path": str(user.home)}), ("grep", {"pattern": "own", "path": "out"})],
        [("find", {"pattern": "models.json", "path": str(user.home)}), ("ls", {"path": str(user.home)})],
        [("bash", {"command": "echo x >> AGENTS.md; ls -l AGENTS.md"}), ("powershell", {"command": "hostname"})],
        [("write", {"path": "free.txt", "content": "free\n"})],
        [("bash", {"command": "git add free.txt && git -c user.name=a -c user.email=a@b.example commit -qm free"})],
    ]
    with model(script) as server:
        ran = user.run(version, server, "-p", "--tools", f"{TOOLS},powershell", "go")
        said = server.answers()
    assert (ran.stdout, ran.status) == ("done\n", 0), ran.stderr
    assert not [answer for answer in said if "own" in answer.replace("unknown", "")]
    assert said[0].count("Read-only file system") >= 4
    assert f"{project}/AGENTS.md was a link out of the working directory" in said[0]
    refused = [said[at] for at in (1, 2, 3, 6, 7, 8, 9)]
    assert not [answer for answer in refused if "Successfully" in answer]
    assert (said[12], said[13].split("\n")) == ("No files found matching pattern", ["canary"])  # the box's own home
    assert canary.read_text() == "the host's own\n"
    assert (project / ".git/config").read_text() == before
    assert {path.name for path in (project / ".git").iterdir()}.isdisjoint({"commondir", "config.worktree"})
    assert not [path for path in (project / ".git/hooks").iterdir() if not path.name.endswith(".sample")]
    assert not (project / ".pi").exists()
    assert not (project / ".agents").exists()
    assert not (user.home / "y").exists()
    assert (project / "free.txt").read_text() == "free\n"
    log = ["git", "-C", str(project), "log", "--format=%s"]
    assert subprocess.run(log, check=True, capture_output=True, text=True).stdout == "free\n"
    assert KEY not in str(said)


@both
def test_without_a_box_nothing_runs(user: User, version: str) -> None:
    user.configure(command=["/nonexistent/kern-sandbox", "serve"])
    (user.project / "a.txt").write_text("hello\n")
    script = [
        [
            ("bash", {"command": "echo x > made"}), ("read", {"path": "a.txt"}), ("ls", {}), ("find", {"pattern": "*"}),
            ("write", {"path": "made", "content": "x"}), ("grep", {"pattern": "hello"}),
            ("edit", {"path": "a.txt", "edits": [{"oldText": "hello", "newText": "bye"}]}),
        ]
    ]  # fmt: skip
    with model(script) as server:
        ran = user.run(version, server, "-p", "--tools", TOOLS, "go")
        said = server.answers()
    assert "box is down" in ran.stderr
    assert len(said) == 7
    assert not [answer for answer in said if "box is down" not in answer]
    assert [path.name for path in user.project.iterdir()] == ["a.txt"]
    assert (user.project / "a.txt").read_text() == "hello\n"


@pytest.mark.parametrize("text", ['{"memoryMb": "much"}', "{", '{"sandbox": false}'])
def test_a_configuration_that_is_not_understood_is_no_box(user: User, text: str) -> None:
    (user.agent / "kern-sandbox.json").write_text(text)
    with model([[("bash", {"command": "echo x > made"})]]) as server:
        ran = user.run("new", server, "-p", "go")
        assert "kern-sandbox.json" in server.answers()[0]
    assert "kern-sandbox.json" in ran.stderr
    assert list(user.project.iterdir()) == []


def test_the_home_directory_is_refused_with_a_reason(user: User) -> None:
    user.project = user.home
    with model([[("bash", {"command": "echo x > made"})]]) as server:
        user.run("new", server, "-p", "go")
        said = server.answers()[0]
    assert "lies in" in said
    assert "another directory" in said
    assert not (user.home / "made").exists()


OTHER = """
import { execSync } from "node:child_process";
import { createBashTool } from "%s";
export default function (pi) {
  const schema = createBashTool(process.cwd()).parameters;
  const tool = (name) => ({ name, label: name, description: name, parameters: schema,
    execute: async (_, { command }) => {
      return { content: [{ type: "text", text: execSync(command).toString() }], details: {} };
    } });
  pi.registerTool(tool("hosttool"));
  pi.registerTool(tool("allowed"));
  pi.on("session_start", () => pi.registerTool(tool("bash")));
}
"""


@both
def test_tools_of_other_extensions_run_only_where_the_user_has_allowed_them(user: User, version: str) -> None:
    other = user.home / "other.ts"
    other.write_text(OTHER % f"{VERSIONS[version]}/pi-coding-agent")
    user.configure(allowTools=["allowed", "bash"])
    names = ("hosttool", "allowed", "bash")
    (user.project / "AGENTS.md").symlink_to(user.canary)
    script = [[(name, {"command": f"hostname; touch {user.home}/by-{name}"}) for name in names]]
    user.extension, ours = str(other), user.extension
    with model(script) as server:
        ran = user.run(version, server, "-e", ours, "-p", "go")
        said = server.answers()
    assert "outside the box" in said[0]
    assert "outside the box" in said[2] or said[2].startswith("sandbox\n")
    assert {path.name for path in user.home.glob("by-*")} == {"by-allowed"}
    assert f"{user.project}/AGENTS.md is a link out of the working directory" in ran.stderr
    assert (user.project / "AGENTS.md").is_symlink()


# --- RPC --------------------------------------------------------------------------------------------------------


@pytest.fixture
def rpc(user: User) -> Iterator[Rpc]:
    script = [[("bash", {"command": f"echo begun; exec sleep {BEGUN}"})]]
    with model(script) as server:
        one = Rpc(user, server, "new")
        yield one
        one.process.kill()
        one.close()


def test_commands_over_rpc_run_in_the_box_and_all_of_it_dies_with_pi(rpc: Rpc, user: User) -> None:
    rpc.send(type="bash", command=f"hostname; echo key=[$SECRET_API_KEY]; cat {user.canary}; echo x > by-rpc")
    answer = rpc.until(type="response", command="bash")["data"]
    assert answer["output"].startswith("sandbox\nkey=[]\n")
    assert "the host's own" not in answer["output"]
    assert (user.project / "by-rpc").read_text() == "x\n"
    notices = [one for one in rpc.seen if one.get("method") == "setStatus"]
    assert "256 MiB, no network" in str(notices)
    rpc.send(type="prompt", message="go")
    while "begun" not in str(rpc.until(type="tool_execution_update")):
        pass  # output comes while the command runs
    eventually(lambda: running(BEGUN), "the command's start")
    rpc.send(type="abort")
    assert "Command aborted" in str(rpc.until(type="tool_execution_end"))
    eventually(lambda: not running(BEGUN), "the command's end")
    rpc.send(type="new_session")
    rpc.until(type="response", command="new_session")
    rpc.send(type="bash", command="hostname")
    assert rpc.until(type="response", command="bash")["data"]["output"] == "sandbox\n"
    rpc.send(type="bash", command=f"exec sleep {LAST}")
    eventually(lambda: running(LAST), "the command's start")
    assert (user.project / ".pi").is_dir()
    rpc.process.kill()
    eventually(lambda: not running(LAST), "the command's end with pi's")
    eventually(lambda: not (user.project / ".pi").exists(), "the placeholder's end")


def test_a_version_that_runs_rpc_commands_on_the_host_is_refused(user: User) -> None:
    with model([]) as server:
        old = Rpc(user, server, "old")
        old.send(type="bash", command="echo x > made")
        assert old.close() == 1
    assert list(user.project.iterdir()) == []


# --- a terminal -------------------------------------------------------------------------------------------------


def test_in_a_terminal_the_box_is_seen_and_a_reload_that_loses_it_ends_pi(user: User, tmp_path: Path) -> None:
    copy = user.home / "extension"
    subprocess.run(["cp", "-r", str(user.tree.root / "node_modules/pi-kern-sandbox"), str(copy)], check=True)
    (copy / "node_modules").mkdir()
    (copy / "node_modules/kern-sandbox").symlink_to(user.tree.root / "node_modules/kern-sandbox")
    user.extension = str(copy)
    (user.project / "out").symlink_to(user.canary)
    script = [[("edit", {"path": "out", "edits": [{"oldText": "own", "newText": "new"}]})]]
    with model(script) as server:
        terminal = Terminal(user, server, tmp_path / "t")
        try:
            eventually(lambda: "256 MiB, no network" in terminal.screen(), "the status in the footer")
            terminal.type("!hostname; echo key=[$SECRET_API_KEY]")
            eventually(lambda: "key=[]" in terminal.screen(), "the command's output")
            assert "sandbox" in terminal.screen()
            terminal.type("/box limits")
            eventually(lambda: "memory 256 MiB" in terminal.screen(), "the limits")
            terminal.type("/box restart")
            eventually(lambda: "The box is up" in terminal.screen(), "the box anew")
            terminal.type("edit it")
            eventually(lambda: "done" in terminal.screen(), "the model's last word")
            assert "the host's" not in terminal.screen()
            (copy / "src/index.ts").write_text("this is no program (")
            terminal.type("/reload")
            eventually(lambda: not terminal.alive(), "pi's end")
        finally:
            terminal.close()
    assert user.canary.read_text() == "the host's own\n"
    eventually(lambda: not (user.project / ".pi").exists(), "the placeholder's end")
