"""A process whose surroundings lack something: a box all the same, or an error of ours that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Callable

import pytest

from command import environment, terminal
from support import applies, need_boxes

if TYPE_CHECKING:
    from pathlib import Path

ASK = """
def ask(call):
    try: return call()
    except kern.SandboxError as error: return f'{type(error).__name__}: {error}'
    except BaseException as error: return f'bare {error!r}'
def run(**options):
    return ask(lambda: kern.run_code('print(42)', **options).stdout.strip())
"""
NO_PROC = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs none /proc && exec "$@"',
    "sh",
]


@pytest.mark.parametrize(
    ("lacking", "options", "said"),
    [
        ("os.environ['XDG_CACHE_HOME'] = '/dev/null'", "", "42"),
        ("os.environ['XDG_CACHE_HOME'] = '/dev/null'", "setup='true'", "HostError: writing the cache: Not a directory"),
        ("import resource; resource.setrlimit(resource.RLIMIT_AS, (60 << 20, 60 << 20))", "", "42"),
        ("os.umask(0o777)", "", "42"),
    ],
    ids=["no cache and no need of one", "no cache", "little memory", "a umask of 777"],
)
def test_what_a_process_lacks(user_process: Callable[..., Any], lacking: str, options: str, said: str) -> None:
    assert user_process(f"{ASK}\n{lacking}\nprint(run({options}))").ends().startswith(said)


def test_files_that_may_not_be_large_enough_are_told(user_process: Callable[..., Any]) -> None:
    user = user_process(f"""{ASK}
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
print(run())
""")
    told = user.ends().strip()
    assert told.startswith("HostError: telling the fork server what to do: File too large")
    assert told.endswith("raise `ulimit -f`")


def test_without_proc_of_its_own_a_process_is_told_so(user_process: Callable[..., Any]) -> None:
    told = user_process(f"{ASK}\nprint(run())", prefix=NO_PROC).ends()
    assert told.startswith("HostError: starting a box: /proc is not mounted. ")


def test_with_closed_standard_streams_a_box_is_made_and_none_of_its_sockets_gets_their_numbers(
    user_process: Callable[..., Any],
) -> None:
    user = user_process(f"""{ASK}
import stat
def is_socket(fd):
    try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError: return False
out = os.fdopen(os.dup(1), 'w')
for fd in range(3): os.close(fd)
kernel = ask(lambda: kern.Sandbox().kernel().run_code('6 * 7').results[0].text)
print(run(), kernel, [fd for fd in range(3) if is_socket(fd)], file=out, flush=True)
os._exit(0)
""")
    assert user.ends() == "42 42 []\n"


def test_where_the_working_directory_is_gone_only_a_relative_path_is_refused(
    user_process: Callable[..., Any], tmp_path: Path
) -> None:
    user = user_process(f"""{ASK}
run()  # Python 3.13.0 cannot import socket where the directory is gone
os.mkdir({str(tmp_path / "gone")!r}); os.chdir({str(tmp_path / "gone")!r}); os.rmdir(os.getcwd())
print(run())
print(run(workspace='.'))
print(run(image='oci-archive:app.tar'))
print(ask(lambda: kern.Sandbox().snapshot('one.tar.gz')))
print(ask(lambda: kern.Sandbox().snapshot({str(tmp_path / "one.tar.gz")!r})))
""")
    well, *refused, snapshot = user.ends().splitlines()
    assert (well, snapshot) == ("42", "[]")
    assert [word.partition("'")[2].partition("'")[0] for word in refused] == [".", "app.tar", "one.tar.gz"]
    assert all(word.startswith("SpecError: ") and "working directory is gone" in word for word in refused)


def test_what_this_user_cannot_list_is_no_mount_no_image_and_no_place_for_a_setup(
    user_process: Callable[..., Any], tmp_path: Path
) -> None:
    applies(os.geteuid() != 0, "root may list everything")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    user = user_process(f"""{ASK}
print(run(mounts={{{str(closed)!r}: '/data'}}))
print(run(image={f"dir:{closed}"!r}))
print(run(workspace={str(closed)!r}, setup='true'))
print(ask(lambda: kern.Sandbox(workspace={str(closed / "in")!r})))
""")
    mount, image, setup, inside = user.ends().splitlines()
    closed.chmod(0o700)
    assert mount.startswith(f"SpecError: mounting '{closed}': Permission denied. You have to be able to list it")
    assert image.startswith(f"SpecError: using '{closed}' as a root file system: Permission denied")
    assert setup.startswith("StartError: box not started, at setup")
    assert inside.endswith("You must be able to enter it, and every directory above it")


def test_where_there_may_be_no_more_threads_an_awaited_call_says_so_and_the_next_one_works(
    user_process: Callable[..., Any],
) -> None:
    user = user_process("""
import asyncio, threading
start = threading.Thread.start
def no_more(thread): raise RuntimeError("can't start new thread")
async def tried(call):
    threading.Thread.start = no_more
    try: await call
    except kern.HostError as error: return str(error)
    finally: threading.Thread.start = start
async def main():
    async with kern.AsyncSandbox() as sandbox:
        print(await tried(sandbox.run_code("1")))
        kernel = await sandbox.kernel()
        print(await tried(kernel.run_code("1")))
        print((await sandbox.run_code("print(4)")).stdout.strip(), (await kernel.run_code("print(2)")).stdout.strip())
asyncio.run(main())
""")
    *told, well = user.ends().splitlines()
    assert well == "4 2"
    assert len(told) == 2
    assert all(words.startswith("starting a thread for a call: can't start new thread. ") for words in told)


def test_a_process_whose_workspace_cannot_be_watched_is_not_started_and_leaves_nothing_open(
    user_process: Callable[..., Any],
) -> None:
    user = user_process(f"""{ASK}
import threading
start = threading.Thread.start
def no_more(thread): raise RuntimeError("can't start new thread")
with kern.Sandbox(workspace_mb=64) as sandbox:
    threading.Thread.start = no_more
    ask(lambda: sandbox.spawn(['sleep', '60']))
    before = len(os.listdir('/proc/self/fd'))
    refused = [ask(lambda: sandbox.spawn(['sleep', '60'])) for _ in range(3)]
    print(len(os.listdir('/proc/self/fd')) - before, refused[0])
    threading.Thread.start = start
    with sandbox.spawn(['true']) as process: print(process.wait().exit_code)
""")
    first, well = user.ends().splitlines()
    assert first.startswith("0 HostError: starting the thread kern-ceiling: can't start new thread")
    assert well == "0"


# --- the commands -----------------------------------------------------------------------------------------------


def shell(line: str, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module's command by a line of the shell in which ``"$@"`` is the command."""
    need_boxes()
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", module, *words],
        env=environment(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("closed", ["<&-", ">&- < /dev/null"], ids=["input", "output"])
def test_the_mcp_server_with_a_closed_stream_has_no_client_and_ends(closed: str) -> None:
    done = shell(f'exec "$@" {closed}', "kern_sandbox.mcp")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_standard_error_that_cannot_be_written_has_the_status_that_the_page_names() -> None:
    code = "import sys; sys.stderr.write('x')"
    assert shell('exec "$@" 2> /dev/full', "kern_sandbox", "run", "-c", code).returncode == 125
    assert shell('exec "$@" 2> /dev/null', "kern_sandbox", "run", "-c", code).returncode == 0


def test_a_relative_mount_where_the_working_directory_is_gone_is_status_2_and_says_so(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = shell(f'cd "{gone}" && rmdir "{gone}" && exec "$@"', "kern_sandbox", "run", "--mount", "x:/x", "-c", "1")
    assert (done.returncode, "working directory is gone" in done.stderr) == (2, True)


def test_a_umask_of_777_changes_nothing_that_doctor_says_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = shell(f'umask 777; TMPDIR="{tmp_path}" exec "$@"', "kern_sandbox", "doctor")
    assert (done.returncode, done.stderr, os.listdir(tmp_path)) == (0, "", [])


@pytest.mark.parametrize("command", ["serve", "mcp"])
def test_a_person_who_starts_a_server_at_a_terminal_is_told_what_it_waits_for_and_how_it_ends(command: str) -> None:
    with terminal(command) as seen:
        seen.show(b"waiting for ")
        seen.show(b"Ctrl-D ends it")
        os.write(seen.master, b"\x04")
        assert seen.end() == 0


@pytest.mark.parametrize("command", ["doctor", "images", "gc"])
def test_a_cache_that_is_no_directory_is_no_defect(command: str) -> None:
    done = shell('XDG_CACHE_HOME=/dev/null exec "$@"', "kern_sandbox", command)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
    shown = {"doctor": "cache                   degraded", "images": "no images in /dev/null/"}
    assert shown.get(command, "") in done.stdout
