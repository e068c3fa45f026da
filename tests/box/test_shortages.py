"""What the host lacks: room on a disk, descriptors. The error says so, and nothing is lost by it."""

from __future__ import annotations

import os

from support import applies


def test_a_full_tmp_is_an_error_of_the_write_and_empty_in_the_next_call(make):
    sandbox = make(tmpfs={"/tmp": "1m"})
    result = sandbox.run(["sh", "-c", "head -c 5000000 /dev/zero > /tmp/a"])
    assert (result.exit_code != 0, result.fault) == (True, None)
    assert "No space left" in result.stderr
    assert sandbox.run(["sh", "-c", "head -c 500000 /dev/zero > /tmp/a"]).success


def test_a_full_disk_is_an_error_of_the_write_and_then_of_the_hosts_own(user_process, tmp_path):
    applies(os.geteuid() == 0, "only root can mount a small disk")
    user = user_process(
        f"""
import subprocess
subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=256k', 'none', {str(tmp_path)!r}], check=True)
s = kern.Sandbox(workspace={str(tmp_path)!r})
result = s.run(['sh', '-c', 'echo kept; head -c 1000000 /dev/zero > big'])
print(result.stdout, result.exit_code != 0, result.fault, 'No space left' in result.stderr)
try: s.write_file('more', 'x' * 100_000)
except kern.WorkspaceError as error: print('disk is full' in str(error))
print(s.run(['sh', '-c', 'rm big; echo x > small; cat small']).stdout)
s.close()
""",
        prefix=["unshare", "--mount"],
    )
    assert user.ends().split() == ["kept", "True", "None", "True", "True", "x"]


def test_a_process_out_of_descriptors_gets_an_error_that_says_so_and_recovers(user_process):
    """It has the usual limit, all used: below a lower one, what other tests of this user send each other counts too."""
    user = user_process("""
s = kern.Sandbox(); s.run(['true'])
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
taken = []
try:
    while True: taken.append(os.open('/dev/null', os.O_RDONLY))
except OSError: pass
said = set()
for spare in range(12):
    try: s.run(['true']); break
    except kern.SandboxError as error: said.add('Too many open files' in str(error))
    except OSError as error: said.add(f'a bare {type(error).__name__}')
    os.close(taken.pop())
for fd in taken: os.close(fd)
print(said, s.run(['echo', 'on']).stdout, end='')
""")
    assert user.ends() == "{True} on\n"


def test_a_first_call_without_descriptors_gets_an_error_that_says_so_and_leaves_none_open(user_process):
    user = user_process("""
import resource
kern.Sandbox, kern.HostError  # an import needs descriptors as well, and its errors are not ours
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
taken, said = [], set()
try:
    while True: taken.append(os.open('/dev/null', os.O_RDONLY))
except OSError: pass
os.close(taken.pop())
grown = []
for spare in range(40):
    before = len(os.listdir('/proc/self/fd'))
    try: result = kern.run_code('print(1)'); break
    except kern.HostError as error: said.add('Too many open files' in str(error) and 'ulimit -n' in str(error))
    except OSError as error: said.add(f'a bare {error!r}')
    grown.append(len(os.listdir('/proc/self/fd')) - before)
    os.close(taken.pop())
print(said, sum(grown), result.stdout, end='')
""")
    assert user.ends() == "{True} 2 1\n", "two of the fork server, once it has started"


def test_a_fork_server_out_of_descriptors_refuses_calls_and_lives(user_process):
    """It needs several descriptors for each call, and may have as many as the user's process may."""
    user = user_process("""
import resource, threading
from kern_sandbox._forkserver.client import existing_server
keep = kern.Sandbox(); keep.write_file('precious', 'data'); keep.run(['true'])
server = existing_server()._process.pid
usual = resource.prlimit(server, resource.RLIMIT_NOFILE)
resource.prlimit(server, resource.RLIMIT_NOFILE, (100, usual[1]))
odd, ended = set(), []
WORDS = 'Too many open files', 'Too many references'  # the second if it is what others of this user have in flight
def call():
    try: ended.append(keep.run(['sleep', '0.5']))
    except kern.HostError as error: odd.add('' if any(map(str(error).__contains__, WORDS)) else str(error)[-300:])
    except BaseException as error: odd.add(f'{type(error).__name__}: {str(error)[-300:]}')
threads = [threading.Thread(target=call, daemon=True) for _ in range(24)]
for t in threads: t.start()
for t in threads: t.join(60)
print('hung', sum(t.is_alive() for t in threads), sorted(odd), [one for one in ended if not one], flush=True)
resource.prlimit(server, resource.RLIMIT_NOFILE, usual)
print(keep.run(['cat', 'precious']).stdout, server == existing_server()._process.pid, flush=True)
os._exit(0)
""")
    assert user.ends() == "hung 0 [''] []\ndata True\n"
