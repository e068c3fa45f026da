"""Layers: what is in them arrives, what would lead out of the root is refused, and marks hide what lies below."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from images import Member, folder, hard_link, layer, member, symlink, zstd_packed
from kern_sandbox import DigestMismatch, LayerRefused
from kern_sandbox._image.layers import Allowance, Layer, apply_layer
from kern_sandbox._image.tree import Tree
from support import need, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable


def unpack(where: Path, *layers: bytes, diff_id: str = "", allowance: Allowance | None = None) -> Path:
    """Apply layers to a new root below ``where``."""
    root = where / "root"
    root.mkdir(exist_ok=True)
    blob = where / "blob"
    tree = Tree(str(root))
    try:
        for content in layers:
            blob.write_bytes(content)
            apply_layer(Layer(str(blob), "sha256:0", diff_id, "an image"), tree, allowance or Allowance())
    finally:
        tree.close()
    return root


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


# --- what arrives -----------------------------------------------------------------------------------------------


def test_files_directories_and_links_arrive_as_they_are(tmp_path: Path) -> None:
    root = unpack(
        tmp_path,
        layer(
            folder("./usr/"), member("./usr/a", "A", mode=0o755, mtime=1234), symlink("usr/abs", "/etc/passwd"),
            symlink("usr/up", "../../../x"), hard_link("usr/same", "usr/a"), member("deep/er/b", "B"),
        ),
    )  # fmt: skip
    assert names(root) == ["deep", "deep/er", "deep/er/b", "usr", "usr/a", "usr/abs", "usr/same", "usr/up"]
    assert (root / "usr/a").read_text() == "A"
    assert (root / "usr/a").stat().st_mtime == 1234
    assert os.readlink(root / "usr/abs") == "/etc/passwd"
    assert os.path.samefile(root / "usr/a", root / "usr/same")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "sp ace", "\udcff\udcfe", "ünï", "-rf", "\\", "a" * 255])
def test_any_name_that_linux_takes_is_taken(name: str, tmp_path: Path) -> None:
    root = unpack(tmp_path, layer(member(f"d/{name}", "x")))
    assert os.listdir(os.fsencode(root / "d")) == [name.encode("utf-8", "surrogateescape")]


def test_no_setuid_no_device_no_fifo_and_no_owner_arrives(tmp_path: Path) -> None:
    root = unpack(
        tmp_path,
        layer(
            member("su", "x", mode=0o4755, uid=1516583083, gid=2**31), folder("sticky"),
            member("secret", "x", mode=0o600), member("null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3),
            member("disk", kind=tarfile.BLKTYPE), member("pipe", kind=tarfile.FIFOTYPE), member("after", "x"),
        ),
    )  # fmt: skip
    assert names(root) == ["after", "secret", "sticky", "su"]
    assert stat.S_IMODE((root / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "secret").stat().st_mode) == 0o644
    assert (root / "su").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd_packed], ids=["plain", "gzip", "zstd"])
def test_every_compression_of_the_specification_is_read(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    root = unpack(tmp_path, pack(layer(member("a", "A" * 100_000))))
    assert (root / "a").stat().st_size == 100_000


def test_two_gzip_members_are_one_layer(tmp_path: Path) -> None:
    content = layer(member("a", "A"))
    root = unpack(tmp_path, gzip.compress(content[:600]) + gzip.compress(content[600:]))
    assert names(root) == ["a"]


# --- layers over layers -----------------------------------------------------------------------------------------

BASE = layer(folder("d"), member("d/old", "old"), folder("d/sub"), member("d/sub/x", "x"), member("f", "file"))


@pytest.mark.parametrize(
    ("above", "left"),
    [
        ([member("d/.wh.old")], ["d", "d/sub", "d/sub/x", "f"]),
        ([member(".wh.d")], ["f"]),
        ([member(".wh.f"), member("f", "new")], ["d", "d/old", "d/sub", "d/sub/x", "f"]),
        ([member("f", "new"), member(".wh.f")], ["d", "d/old", "d/sub", "d/sub/x", "f"]),
        ([member("d/.wh..wh..opq")], ["d", "f"]),
        ([member("d/.wh..wh..opq"), member("d/new", "n")], ["d", "d/new", "f"]),
        (
            [member("d/new", "n"), member("d/sub/y", "y"), member("d/.wh..wh..opq")],
            ["d", "d/new", "d/sub", "d/sub/y", "f"],
        ),
        ([member("d", "now a file")], ["d", "f"]),
        ([folder("f"), member("f/in", "x")], ["d", "d/old", "d/sub", "d/sub/x", "f", "f/in"]),
        ([symlink("d", "f")], ["d", "f"]),
        ([member("f", kind=tarfile.CHRTYPE)], ["d", "d/old", "d/sub", "d/sub/x"]),
        ([member("none/.wh.x"), member(".wh.none"), member(".wh..wh.plnk")], ["d", "d/old", "d/sub", "d/sub/x", "f"]),
        ([folder("d")], ["d", "d/old", "d/sub", "d/sub/x", "f"]),
    ],
)
def test_a_layer_hides_and_replaces_what_lies_below(above: list[Member], left: list[str], tmp_path: Path) -> None:
    assert names(unpack(tmp_path, BASE, layer(*above))) == left


def test_a_file_replaced_by_a_layer_keeps_its_other_names(tmp_path: Path) -> None:
    below = layer(member("a", "old"), hard_link("b", "a"))
    root = unpack(tmp_path, below, layer(hard_link("c", "b"), member("a", "new")))
    assert [(root / name).read_text() for name in "abc"] == ["new", "old", "old"]


def test_a_directory_that_takes_the_place_of_a_link_is_not_entered_through_it(tmp_path: Path) -> None:
    root = unpack(tmp_path, layer(symlink("d", "e"), folder("e")), layer(folder("d"), member("d/x", "x")))
    assert names(root) == ["d", "d/x", "e"]


def test_a_relative_link_of_the_image_may_be_a_parent(tmp_path: Path) -> None:
    root = unpack(tmp_path, layer(folder("usr/lib"), symlink("lib", "usr/lib")), layer(member("lib/x", "x")))
    assert (root / "usr/lib/x").is_file()
    assert (root / "lib").is_symlink()


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries",
    [
        [member("../x")], [member("a/../../x")], [member("/x")], [member("..")], [member(".")],
        [symlink("a", "/tmp"), member("a/x")], [symlink("a", ".."), member("a/x")],
        [symlink("a", "b"), symlink("b", "a"), member("a/x")], [symlink("a", "nowhere"), member("a/x")],
        [symlink("a", "nowhere"), member("a/b/x")],
        [member("f", "x"), member("f/x")], [hard_link("a", "/etc/passwd")], [hard_link("a", "../x")],
        [hard_link("a", "later"), member("later", "x")], [hard_link("a", ".")], [folder("d"), hard_link("a", "d")],
        [symlink("a", ".."), hard_link("b", "a/x")], [member(".wh.")], [member(".wh...")], [member(".wh..")],
        [symlink("a", ".."), member("a/.wh.x")], [symlink("a", "x" * 5000)], [member("a" * 256)],
        [member("a", kind=b"?")], [member("a/" * 300 + "b")],
    ],
    ids=lambda entries: " ".join(entry.name[:20] for entry in entries),
)  # fmt: skip
def test_an_entry_that_leads_out_or_nowhere_is_refused(entries: list[Member], tmp_path: Path) -> None:
    outside = tmp_path / "x"
    outside.write_text("mine")
    with pytest.raises(LayerRefused, match=r"its entry .* is refused"):
        unpack(tmp_path, layer(member("good", "x"), *entries))
    assert outside.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["blob", "root", "x"]


@pytest.mark.parametrize(
    "content",
    [
        b"no tar at all" * 100, gzip.compress(BASE)[:-20], gzip.compress(b"x" * 600), b"BZh9" + bytes(600),
        gzip.compress(BASE)[:30] + bytes(200),
    ],
    ids=["text", "cut", "no tar in gzip", "bzip2", "damaged"],
)  # fmt: skip
def test_what_is_no_layer_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(LayerRefused):
        unpack(tmp_path, content)


def test_content_must_be_what_the_configuration_names(tmp_path: Path) -> None:
    with pytest.raises(DigestMismatch, match="was named sha256:1"):
        unpack(tmp_path, BASE, diff_id="sha256:1")


def test_a_small_layer_cannot_become_a_large_root(tmp_path: Path) -> None:
    bomb = gzip.compress(layer(member("zeros", bytes(1 << 20))))
    unpack(tmp_path, bomb)
    with pytest.raises(LayerRefused, match="larger than any"):
        unpack(tmp_path, bomb, allowance=Allowance(size=1 << 19))
    with pytest.raises(LayerRefused, match="larger than any"):
        unpack(tmp_path, layer(*(member(str(number)) for number in range(9))), allowance=Allowance(entries=5))


@pytest.mark.parametrize(
    "records",
    [{"GNU.sparse.map": "0,x"}, {"GNU.sparse.size": "1L"}, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}],
    ids=["map", "size", "no map"],
)
def test_numbers_that_are_none_make_no_layer(records: dict[str, str], tmp_path: Path) -> None:
    content = layer(member("a", "x" * 600, pax_headers={"comment": "x"}), member("b", "y", pax_headers=records))
    with pytest.raises(LayerRefused, match=r"damaged|sparse"):
        unpack(tmp_path, content)


def test_a_deep_tree_is_removed(tmp_path: Path) -> None:
    steps = "a/" * 220
    deep = [folder(steps), symlink("l0", steps), folder(f"l0/{steps}")]
    root = unpack(tmp_path, layer(*deep), layer(member(".wh.a"), member("after", "x")))
    assert names(root) == ["after", "l0"]


def test_a_header_cannot_fill_the_memory(tmp_path: Path) -> None:
    long = tarfile.TarInfo("x")
    long.type = tarfile.GNUTYPE_LONGNAME
    long.size = 1 << 33
    with pytest.raises(LayerRefused, match="of name and attributes"):
        unpack(tmp_path, long.tobuf(tarfile.GNU_FORMAT))


def _sparse(old: bool) -> bytes:
    """A layer with a file of 1 TiB that stores nothing, in GNU's first or last format."""
    if old:
        header = tarfile.TarInfo("big")
        header.type = tarfile.GNUTYPE_SPARSE
        block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
        block[483:495] = b"%011o " % (1 << 32)
        block[148:156] = b"%06o\0 " % (256 + sum(block[:148] + block[156:]))
        return bytes(block) + bytes(1024)
    said = {"major": "1", "minor": "0", "name": "big", "realsize": str(1 << 40)}
    records = {f"GNU.sparse.{name}": value for name, value in said.items()}
    return layer(member("big", (b"1\n%d\n0\n" % (1 << 40)).ljust(512, b"\0"), pax_headers=records))


@pytest.mark.parametrize("old", [False, True])
def test_a_hole_cannot_fill_the_disk(old: bool, tmp_path: Path) -> None:
    with pytest.raises(LayerRefused, match="sparse"):
        unpack(tmp_path, _sparse(old))
    assert names(tmp_path / "root") == []


def test_directories_that_no_entry_names_count_as_well(tmp_path: Path) -> None:
    chains = [member(f"{number}/" + "a/" * 200 + "f", "x") for number in range(4)]
    with pytest.raises(LayerRefused, match="larger"):
        unpack(tmp_path, layer(*chains), allowance=Allowance(1 << 20, 700))
    unpack(tmp_path, layer(*chains), allowance=Allowance(1 << 20, 4 * 202))


def test_links_do_not_lead_deeper_than_a_tree_can_be_removed(tmp_path: Path) -> None:
    deep = "/".join(["a"] * 200)
    entries = [folder(deep), symlink("l0", deep)]
    for number in range(8):
        entries += [folder(f"l{number}/{deep}"), symlink(f"l{number + 1}", f"l{number}/{deep}")]
    with pytest.raises(LayerRefused, match="512 directories"):
        unpack(tmp_path, layer(*entries))
    unpack(tmp_path, layer(*entries[:4]))
    shutil.rmtree(tmp_path / "root")


def test_many_small_files_arrive(tmp_path: Path) -> None:
    count = 1000
    root = unpack(tmp_path, layer(*(member(f"d{number % 50}/{number}", "x") for number in range(count))))
    assert sum(path.is_file() for path in root.rglob("*")) == count


def test_unpacking_leaves_no_descriptor(tmp_path: Path) -> None:
    need(os.path.isdir("/proc/self/fd"), "no /proc")
    before = open_descriptors()
    for entries in ([member("a/b", "x")], [member("../x")], [symlink("a", ".."), member("a/.wh.x")]):
        try:
            unpack(tmp_path, layer(*entries))
        except LayerRefused:
            continue
    assert not open_descriptors() - before
