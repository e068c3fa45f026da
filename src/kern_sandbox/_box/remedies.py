"""The exact command that makes a host do what a box needs, chosen purely from what was seen of the host."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence

__all__ = [
    "for_interpreters",
    "for_landlock",
    "for_limit",
    "for_namespace",
    "for_proc",
    "for_seccomp",
    "for_user_namespaces",
]

_MANY = 15000
_CONTAINER = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
_CONTAINER_PROC = f"{_CONTAINER} --security-opt systempaths=unconfined"
# No line of these depends on where it begins: a report that indents them can be pasted.
_PROFILE = """\
printf '%s\\n' 'abi <abi/4.0>,' 'include <tunables/global>' \\
  'profile kern-sandbox {executable} flags=(unconfined) {{ userns, }}' |
  sudo tee /etc/apparmor.d/kern-sandbox
sudo apparmor_parser -r /etc/apparmor.d/kern-sandbox"""
_UNIT = """\
sudo mkdir -p /etc/systemd/system/{unit}.d
printf '%s\\n' '[Service]' '{setting}' |
  sudo tee /etc/systemd/system/{unit}.d/kern-sandbox.conf
sudo systemctl daemon-reload
sudo systemctl restart {unit}"""
_USER_UNIT = """\
mkdir -p ~/.config/systemd/user/{unit}.d
printf '%s\\n' '[Service]' '{setting}' \\
  > ~/.config/systemd/user/{unit}.d/kern-sandbox.conf
systemctl --user daemon-reload
systemctl --user restart {unit}"""
_PACKAGES = {"bash": "bash", "sh": "dash", "node": "nodejs"}
_RUN = re.compile(r"[;,:]? run: (?P<command>.+?)(?: \((?P<aside>[^()]*)\))?(?=; |\Z)")
_BOOT_WORD = re.compile(r"; (?:boot with cgroup v2: )?add (?P<word>[\w.=]+) to the kernel's command line")


def for_user_namespaces(code: int, facts: Mapping[str, str]) -> tuple[str, str]:
    """Why Linux refuses user namespaces with the error number ``code``, and the command; ``""`` where unknown."""
    if code in (errno.ENOSPC, errno.EUSERS):
        if facts.get("max_user_namespaces") == "0":
            return "user.max_user_namespaces is 0", f"sudo sysctl -w user.max_user_namespaces={_MANY}"
        return "their number, or their depth of 32, is used up", f"sudo sysctl -w user.max_user_namespaces={_MANY * 8}"
    if code in (errno.ENOSYS, errno.EINVAL):
        return "this Linux was built without them (CONFIG_USER_NS)", ""
    if facts.get("userns_clone") == "0" and facts.get("uid") != "0":
        return "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if facts.get("uid") == "0" and not facts.get("uid_map", "").endswith("4294967295"):
        return "this root has few ids to give, as in a rootless container; an ordinary user there needs none", ""
    return _of_policy(code, facts)


def _of_policy(code: int, facts: Mapping[str, str]) -> tuple[str, str]:
    """Who of the security modules, filters and enclosing namespaces it is; EACCES is only ever a security module's."""
    label = facts.get("label", "")
    confined = label.endswith("(enforce)")  # as AppArmor ends it; SELinux has other words there
    if facts.get("apparmor_restricts") == "1" and (not confined or "unprivileged_userns" in label):
        reason = (
            "AppArmor allows them only to programs with a profile; the command gives this Python one (for every "
            "program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)"
        )
        return reason, _PROFILE.format(executable=facts.get("executable", "/usr/bin/python3"))
    if facts.get("container") and code != errno.EACCES:
        return "the policy of the container that this process is in", _CONTAINER
    if confined:
        profile = label.partition(" (")[0]
        return f"the AppArmor profile {profile!r} of this process", f"sudo aa-complain '{profile}'"
    if facts.get("seccomp") == "2":
        return "a seccomp filter on this process", _for_unit("RestrictNamespaces=no", facts)
    return ("a security module's policy" if code == errno.EACCES else ""), ""


def _for_unit(setting: str, facts: Mapping[str, str]) -> str:
    """The command that changes a setting of the systemd service that this process belongs to, if it does."""
    units: list[str] = re.findall(r"/([\w@.\\:-]+\.service)(?=/|$)", facts.get("cgroup", ""), re.MULTILINE)
    by_user = any(unit.startswith("user@") for unit in units)
    own = [unit for unit in units if not unit.startswith("user@")]
    return (_USER_UNIT if by_user else _UNIT).format(unit=own[-1], setting=setting) if own else ""


def for_namespace(kind: str, code: int, facts: Mapping[str, str]) -> str:
    """The command for a namespace of ``kind`` (as in ``user.max_<kind>_namespaces``) refused with ``code``."""
    kind = {"mount": "mnt"}.get(kind, kind)
    if code == errno.ENOSPC:
        return f"sudo sysctl -w user.max_{kind}_namespaces={_MANY}"
    return for_user_namespaces(code, facts)[1] if code in (errno.EPERM, errno.EACCES) else ""


def for_proc(facts: Mapping[str, str]) -> tuple[str, str]:
    """Why a fresh ``/proc`` is refused, and the command."""
    if facts.get("container"):
        return "the container hides parts of /proc", _CONTAINER_PROC
    return "parts of the host's /proc are covered by other mounts", "grep ' /proc/' /proc/self/mountinfo"


def for_limit(reason: str, facts: Mapping[str, str]) -> tuple[str, str]:
    """A reason from the cgroup probe as what was seen and the command in it."""
    found = _RUN.search(reason)
    if found is not None:
        aside = f" ({found['aside']})" if found["aside"] else ""
        return (reason[: found.start()] + aside + reason[found.end() :]).strip(), found["command"].strip()
    word = _BOOT_WORD.search(reason)
    if word is not None:
        return reason, _for_boot(word["word"], facts)
    if "mounted read-only, as in a container" in reason:
        return reason, "docker run --privileged --cgroupns=private"
    return reason, _for_unit("Delegate=cpu memory pids", facts) if "/cgroup" in reason else ""


def _for_boot(word: str, facts: Mapping[str, str]) -> str:
    """The command that adds a word to Linux' command line and boots with it."""
    file = facts.get("boot", "")
    if file.endswith("cmdline.txt"):
        return f"sudo sed -i '1s/$/ {word}/' {file} && sudo reboot"
    if file:
        edit = f"sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{word} /' {file}"
        return f"{edit} && sudo update-grub && sudo reboot"
    return ""


def for_seccomp(facts: Mapping[str, str]) -> str:
    """The command where a filter cannot be installed: only a container's policy is in anybody's hand."""
    return _CONTAINER if facts.get("container") else ""


def for_landlock(facts: Mapping[str, str]) -> str:
    """The command that switches Landlock on, where this Linux has other security modules listed."""
    modules = facts.get("lsm", "")
    return _for_boot(f"lsm=landlock,{modules}", facts) if modules and "landlock" not in modules else ""


def for_interpreters(absent: Sequence[str]) -> str:
    """The command that installs them on Debian and its kin."""
    packages = [_PACKAGES[name] for name in absent if name in _PACKAGES]
    return f"sudo apt-get install {' '.join(packages)}" if packages else ""
