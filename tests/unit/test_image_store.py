"""The store: an image is there whole or not at all, is shared, and goes when nobody names or uses it."""

from __future__ import annotations

import errno
import gzip
import json
import lzma
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kern_sandbox
from images import build, docker_archive, folder, layer, member, oci_archive
from kern_sandbox import DigestMismatch, ImageError, LayerRefused
from kern_sandbox._image.images import Image, Making, load, obtain
from kern_sandbox._image.layers import Allowance
from kern_sandbox._image.reference import parse
from kern_sandbox._image.store import Store
from kern_sandbox.doctor import HostReport, LayerReport, _stored
from support import need, user_namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping

SMALL = build(layer(folder("bin"), member("bin/a", "A")), layer(member("bin/.wh.a"), member("bin/b", "B")), Env=["X=1"])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def take(reference: str, store: Store, making: Making | None = None) -> Image:
    image = obtain(parse(reference), store, making)
    image.close()
    return image


def left(store: Store) -> list[str]:
    """What lies in the store besides whole images, names and locks."""
    places = (Path(store.folder, name) for name in ("staging", "trash"))
    return [str(path) for place in places if place.is_dir() for path in place.iterdir()]


# --- archives ---------------------------------------------------------------------------------------------------


def test_an_archive_becomes_a_root_with_its_layers_applied(tmp_path: Path, store: Store) -> None:
    image = take(oci_archive(tmp_path / "a.tar", SMALL), store)
    assert sorted(os.listdir(Path(image.root, "bin"))) == ["b"]
    assert image.env == {"X": "1"}
    assert image.digest == SMALL.digest
    assert left(store) == []


def test_what_docker_save_writes_is_read(tmp_path: Path, store: Store) -> None:
    reference = docker_archive(tmp_path / "a.tar", SMALL, "team/app:v1")
    for named in (reference, f"{reference}:team/app:v1"):
        assert os.listdir(Path(take(named, store).root, "bin")) == ["b"]
    with pytest.raises(ImageError, match="no such image"):
        take(f"{reference}:team/app:v2", store)


def test_a_header_of_an_archive_cannot_fill_the_memory(tmp_path: Path, store: Store) -> None:
    long = tarfile.TarInfo("x")
    long.type, long.size = tarfile.XHDTYPE, 1 << 33
    (tmp_path / "a.tar").write_bytes(long.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    with pytest.raises(LayerRefused, match="of name and attributes"):
        take(f"oci-archive:{tmp_path}/a.tar", store)


def test_layers_cannot_fill_the_disk_before_they_are_unpacked(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = oci_archive(tmp_path / "a.tar", build(layer(member("a", bytes(50_000))), layer(member("b"))))
    take(reference, store)
    monkeypatch.setattr("kern_sandbox._image.images.Allowance", lambda: Allowance(size=100))
    with pytest.raises(LayerRefused, match="larger than any"):
        take(reference, Store(str(tmp_path / "other")))
    assert left(Store(str(tmp_path / "other"))) == []


def test_one_image_of_an_archive_is_chosen_by_its_tag(tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL, tag="v1")
    assert take(f"{reference}:v1", store).digest == SMALL.digest
    with pytest.raises(ImageError, match="no such image"):
        take(f"{reference}:v2", store)


def test_an_archive_that_changes_is_read_again(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.tar"
    first = take(oci_archive(path, SMALL), store)
    other = build(layer(member("other", "x")))
    path.unlink()
    assert take(oci_archive(path, other), store).digest == other.digest != first.digest


def test_loading_gives_the_archives_own_names(tmp_path: Path, store: Store) -> None:
    docker_archive(tmp_path / "a.tar", SMALL, "team/app:v1")
    assert [name for name, _ in load(str(tmp_path / "a.tar"), None, store, Making())] == ["docker.io/team/app:v1"]
    assert os.listdir(Path(take("team/app:v1", store).root, "bin")) == ["b"]
    oci_archive(tmp_path / "b.tar", SMALL)
    assert load(str(tmp_path / "b.tar"), "mine", store, Making()) == [("docker.io/library/mine:latest", SMALL.digest)]


@pytest.mark.parametrize("kind", ["oci-archive", "docker-archive"])
@pytest.mark.parametrize("content", [b"", b"no tar", bytes(10240), layer(member("x", "y"))])
def test_a_file_that_is_no_archive_is_refused(kind: str, content: bytes, tmp_path: Path, store: Store) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(ImageError, match=r"a\.tar"):
        take(f"{kind}:{tmp_path}/a.tar", store)


def test_a_damaged_blob_is_found_and_nothing_stays(tmp_path: Path, store: Store) -> None:
    broken = build(layer(member("a", "A")), pack=bytes)
    name = next(name for name, content in broken.blobs.items() if content == broken.layers[0])
    broken.blobs[name] = broken.blobs[name][:-1] + b"!"
    with pytest.raises(DigestMismatch, match=name[7:]):
        take(oci_archive(tmp_path / "a.tar", broken), store)
    assert (store.images(), left(store)) == ([], [])


def test_a_layers_name_is_a_digest_and_no_path(tmp_path: Path, store: Store) -> None:
    outside = tmp_path / "outside"
    content = layer(member("x", "y"))
    config = {"rootfs": {"diff_ids": [f"sha256:{outside}"]}}
    hostile_archive(
        tmp_path / "a.tar", [{"Config": "c", "Layers": ["l"]}], {"c": json.dumps(config).encode(), "l": content}
    )
    with pytest.raises(ImageError, match="not by a sha256 digest"):
        take(f"docker-archive:{tmp_path}/a.tar", store)
    assert not outside.exists()


def hostile_archive(path: Path, manifest: object, files: Mapping[str, bytes]) -> None:
    named = {"manifest.json": json.dumps(manifest).encode(), **files}
    path.write_bytes(layer(*(member(name, content) for name, content in named.items())))


@pytest.mark.parametrize(
    "manifest",
    [
        [{"RepoTags": 5, "Layers": 5, "Config": []}],
        [5],
        {"a": 1},
        [{"Config": "manifest.json", "Layers": {}}] * 2,
        None,
    ],
    ids=repr,
)
def test_a_table_of_contents_of_another_form_is_refused(manifest: object, tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.tar"
    hostile_archive(path, manifest, {"index.json": b'{"manifests": 5}'})
    for read in (
        lambda: load(str(path), None, store, Making()),
        lambda: take(f"docker-archive:{path}:v1", store),
        lambda: take(f"oci-archive:{path}", store),
        lambda: take(f"oci-archive:{path}:v1", store),
    ):
        with pytest.raises(ImageError):
            read()


def test_an_archive_that_is_damaged_says_so(tmp_path: Path, store: Store) -> None:
    whole = Path(docker_archive(tmp_path / "a.tar", SMALL, "app:v1").partition(":")[2]).read_bytes()
    for content in (gzip.compress(whole)[:200], lzma.compress(whole)[:200], sized(1 << 33)):
        (tmp_path / "a.tar").write_bytes(content)
        with pytest.raises(ImageError):
            take(f"docker-archive:{tmp_path}/a.tar", store)
    (tmp_path / "a.tar").write_bytes(gzip.compress(whole))
    assert take(f"docker-archive:{tmp_path}/a.tar", store).env == {"X": "1"}


def sized(size: int) -> bytes:
    """The header of a name of ``size`` bytes."""
    long = tarfile.TarInfo("x")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, size
    return long.tobuf(tarfile.GNU_FORMAT)


def test_what_an_image_says_of_itself_moves_no_terminal_and_reaches_no_program_half(
    tmp_path: Path, store: Store
) -> None:
    odd = build(layer(member("a", "A")), Env=["X=\ud800", "Y=1"])
    assert take(oci_archive(tmp_path / "a.tar", odd), store).env == {"Y": "1"}
    foreign = build(layer(member("a", "A")), architecture="\x1b[31m")
    with pytest.raises(ImageError, match=r"it is for linux/ \[31m"):
        take(oci_archive(tmp_path / "b.tar", foreign), store)


def test_an_image_for_another_machine_is_refused(tmp_path: Path, store: Store) -> None:
    foreign = build(layer(member("a", "A")), architecture="s390x")
    with pytest.raises(ImageError, match="it is for linux/s390x"):
        take(oci_archive(tmp_path / "a.tar", foreign), store)


def test_a_refused_layer_leaves_nothing(tmp_path: Path, store: Store) -> None:
    bad = build(layer(member("a", "A")), layer(member("../x")))
    with pytest.raises(LayerRefused, match=r"sha256:.*goes up"):
        take(oci_archive(tmp_path / "a.tar", bad), store)
    assert (store.images(), left(store)) == ([], [])


# --- making -----------------------------------------------------------------------------------------------------


def test_of_many_who_want_an_image_one_makes_it(tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    made: list[str] = []
    roots: list[str] = []

    def finish(root: str) -> str:
        made.append(root)
        return ""

    making = Making(finish=finish)
    threads = [threading.Thread(target=lambda: roots.append(take(reference, store, making).root)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(roots) == 6
    assert len(set(roots)) == 1


_KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from kern_sandbox._image.images import Making, obtain
from kern_sandbox._image.layers import Allowance
from kern_sandbox._image.reference import parse
from kern_sandbox._image.store import Store
die = lambda root: os.kill(os.getpid(), signal.SIGKILL)
obtain(parse(sys.argv[2]), Store(sys.argv[3]), Making(finish=die))
"""


def test_who_is_killed_half_way_leaves_what_the_next_one_uses(tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    site = str(Path(kern_sandbox.__path__[0]).parent)
    done = subprocess.run([sys.executable, "-c", _KILLED, site, reference, store.folder], check=False)
    assert done.returncode == -9
    assert store.images() == []
    assert len(left(store)) == 1
    assert os.listdir(Path(take(reference, store).root, "bin")) == ["b"]
    assert left(store) == []


def test_what_is_left_of_a_killed_attempt_is_collected(tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    site = str(Path(kern_sandbox.__path__[0]).parent)
    subprocess.run([sys.executable, "-c", _KILLED, site, reference, store.folder], check=False)
    assert store.collect() == []
    assert left(store) == []


@pytest.mark.parametrize("left_over", ["", '{"digest": "sha2', "missing"])
def test_what_a_lost_machine_left_in_an_images_place_is_made_anew(left_over: str, tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    about = Path(take(reference, store).root).parent / "image.json"
    about.write_text(left_over)
    if left_over == "missing":
        about.unlink()
    assert store.images() == []
    assert os.listdir(Path(take(reference, store).root, "bin")) == ["b"]
    assert len(store.images()) == 1
    assert left(store) == []


def test_nothing_gets_its_name_before_it_is_on_the_disk(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    seen: list[str] = []

    def fail(path: str) -> None:
        seen.extend(os.listdir(path))
        raise OSError(errno.EIO, "a broken disk", path)

    with monkeypatch.context() as patch:
        patch.setattr("kern_sandbox._image.store.sync_file_system", fail)
        with pytest.raises(ImageError, match="keeping the image") as failure:
            take(reference, store)
    assert failure.value.errno == errno.EIO
    assert sorted(seen) == ["image.json", "root"]
    assert (store.images(), left(store)) == ([], [])
    assert os.listdir(Path(take(reference, store).root, "bin")) == ["b"]


_FULL = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
store = sys.argv[3]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", store], check=True)
from kern_sandbox import ImageError
from kern_sandbox._image.images import obtain
from kern_sandbox._image.layers import Allowance
from kern_sandbox._image.reference import parse
from kern_sandbox._image.store import Store
try:
    obtain(parse(sys.argv[2]), Store(store))
except ImageError as error:
    import os
    print(error.errno, "gc" in error.hint, Store(store).images(), os.listdir(store + "/staging"))
"""


def test_a_full_disk_is_said_and_gives_its_space_back(tmp_path: Path, store: Store) -> None:
    need(user_namespaces() == "allowed", "no user namespaces, and so no small disk")
    reference = oci_archive(tmp_path / "a.tar", build(layer(member("zeros", bytes(1 << 20)))))
    os.mkdir(store.folder)
    site = str(Path(kern_sandbox.__path__[0]).parent)
    words = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", _FULL]
    done = subprocess.run([*words, site, reference, store.folder], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(errno.ENOSPC), "True", "[]", "[]"], done.stderr


def test_the_report_on_this_machine_tells_the_stores_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = Store()
    assert store.folder == f"{tmp_path}/kern-sandbox/images"
    take(oci_archive(tmp_path / "a.tar", SMALL), store)
    stored = _stored()
    assert stored == {"images": 1, "images_bytes": store.size(), "images_path": store.folder}
    report = str(HostReport(True, [LayerReport("a", "works", "b", "")], "Linux", "m", 1, "3", **stored))
    assert "Images stored: 1, 0 MB, in" in report
    assert max(map(len, report.splitlines())) <= 80


# --- what is kept -----------------------------------------------------------------------------------------------


def test_an_image_goes_with_its_last_name(tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    image = take(reference, store)
    store.give_name("docker.io/library/other:latest", SMALL.digest)
    assert store.remove(image.name).digest == SMALL.digest
    assert os.path.isdir(image.root)
    store.remove("docker.io/library/other:latest")
    assert not os.path.exists(image.root)
    assert store.images() == []
    with pytest.raises(ImageError, match="not in the store"):
        store.remove(image.name)


def test_an_image_in_use_is_not_removed(tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    held = obtain(parse(reference), store)
    with pytest.raises(ImageError, match="a Sandbox uses it"):
        store.remove(SMALL.digest[:19])
    os.unlink(next(Path(store.folder, "names").iterdir()))
    assert store.collect() == []
    assert os.path.isdir(held.root)
    held.close()
    assert store.collect() == [SMALL.digest]
    assert not os.path.exists(held.root)


def test_the_store_is_the_users_alone_and_its_images_are_readable(tmp_path: Path, store: Store) -> None:
    image = take(oci_archive(tmp_path / "a.tar", SMALL), store)
    assert os.stat(store.folder).st_mode & 0o077 == 0
    assert os.stat(image.root).st_mode & 0o777 == 0o755
    assert store.size() == sum(each.size for each in store.images()) > 0


def test_names_that_were_damaged_are_names_no_more(tmp_path: Path, store: Store) -> None:
    reference = oci_archive(tmp_path / "a.tar", SMALL)
    take(reference, store)
    name = next(Path(store.folder, "names").iterdir())
    name.write_text("{")
    assert [each.name for each in store.images()] == [""]
    assert take(reference, store).digest == SMALL.digest
    assert [each.name for each in store.images()] == [parse(reference).name]
