"""The benchmark's own arithmetic, tables and page. What it measures is asserted nowhere."""

from __future__ import annotations

import json
import re
import tarfile
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import pytest
from benchmarks import __main__ as command
from benchmarks import chart, leftovers, limit, rootfs
from benchmarks.budgets import BUDGETS, judge
from benchmarks.engines import Worker, ours
from benchmarks.measure import BARE, BWRAP, OURS, PEER, Missing, Row, Stats, by_turns, rows, stats
from benchmarks.report import BEGIN, END, Report, from_json, number, table, update

from support import need_boxes


def one(median: float) -> Stats:
    return Stats(median, median / 2, median * 2, 9)


def row(key: str, **cells: float) -> Row:
    who = {"ours": OURS, "bwrap": BWRAP, "peer": PEER, "bare": BARE}
    return Row(key, f"`{key}`", "ms", {who[name]: one(value) for name, value in cells.items()})


ALL = [
    row("true sustained", ours=3.0, bwrap=4.0, peer=40.0, bare=1.0),
    row("print sustained", ours=2.5, bwrap=20.0, peer=50.0, bare=9.0),
    row("image sustained", ours=2.5, peer=50.0),
    row("reference sustained", bare=10.0),
    row("burst", ours=0.7, peer=2.0),
    row("cell", ours=0.1, peer=0.2),
    row("at once", ours=200.0, peer=900.0, bare=500.0),
    row("import", ours=30.0, peer=24.0),
    row("memory", ours=3.3),
]
REPORT = Report({"date": "today", "machine": "a <machine>"}, ALL, [], ["pandas: not installed"], ["nothing"])


def test_the_figures_of_values_are_the_median_and_the_5th_and_95th_percentile() -> None:
    assert stats(float(value) for value in range(101)) == Stats(50.0, 5.0, 95.0, 101)
    assert stats([2.0]) == Stats(2.0, 2.0, 2.0, 1)


def test_subjects_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    def run(name: str, times: int) -> list[float]:
        order.append(name * times)
        return [float(len(order))] * times

    found = by_turns({(key, OURS): partial(run, key) for key in "ab"}, rounds=4, length=2)
    assert order == ["aa", "bb"] * 3
    assert found["a", OURS] == Stats(4.0, 3.0, 5.0, 4)


def test_rows_keep_their_order_and_leave_out_what_was_not_measured() -> None:
    found = {("b", BARE): one(1), ("a", PEER): one(2), ("a", OURS): one(3)}
    made = rows({"a": "A", "none": "N", "b": "B"}, found)
    assert [(each.label, [*each.cells]) for each in made] == [("A", [OURS, PEER]), ("B", [BARE])]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "0.012"), (0.5, "0.50"), (9.876, "9.88"), (45.67, "45.7"), (1234.4, "1234")]
)
def test_a_number_has_about_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_the_table_says_how_many_times_ours_the_others_are() -> None:
    line = table([row("print", ours=2.5, peer=50.0)]).splitlines()[-1]
    assert line == "| `print` | ms | **2.50 (1.25-5.00)** | 50.0 (25.0-100); 20.0x |"


def test_every_budget_is_judged_by_the_figures_that_it_names() -> None:
    verdicts = [finding.verdict for finding in judge(ALL)]
    assert verdicts == ["met", "met", "missed", "met", "met", "missed", "missed", "met", "met"]
    figures = [finding.figure for finding in judge(ALL)]
    assert figures[:4] == pytest.approx([0.25, 0.05, 0.7, 0.75])


def test_a_budget_whose_figure_is_missing_is_neither_met_nor_missed() -> None:
    assert {finding.verdict for finding in judge([])} == {"not measured"}
    without_peer = [each._replace(cells={k: v for k, v in each.cells.items() if k != PEER}) for each in ALL]
    assert [finding.verdict for finding in judge(without_peer)].count("not measured") == 2


def test_a_page_is_changed_between_its_markers_only() -> None:
    page = f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe rest.\n"
    new = update(page, "new")
    assert new == f"# Title\n\n{BEGIN}\nnew\n{END}\n\nThe rest.\n"
    assert update(new, "new") == new


@pytest.mark.parametrize("page", ["no markers", f"{BEGIN}", f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_one_place_for_the_figures_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="needs one"):
        update(page, "new")


def test_the_report_has_the_machine_the_budgets_the_figures_and_what_is_missing() -> None:
    text = REPORT.to_markdown("picture.svg")
    for part in ("- date: today", "(picture.svg)", "**missed**", "`print sustained`", "- pandas: not installed"):
        assert part in text


def test_a_report_comes_back_from_its_json() -> None:
    text = REPORT.to_json()
    assert from_json(text) == REPORT
    assert [each["verdict"] for each in json.loads(text)["budgets"]] == [each.verdict for each in judge(ALL)]


def test_the_chart_has_a_bar_for_each_cell_longer_for_more_and_escapes_its_words() -> None:
    tree = ET.fromstring(chart.svg(ALL, "on a <machine>"))  # our own
    space = "{http://www.w3.org/2000/svg}"
    bars = [each for each in tree.iter(f"{space}rect") if each.get("rx")]
    shown = [
        bar for _, cells in chart.PANELS for bar in cells if any(bar[:2] == (r.key, w) for r in ALL for w in r.cells)
    ]
    assert len(bars) == len(shown)
    widths = {words: float(each.get("width", "0")) for (_, who, words), each in zip(shown, bars) if who == PEER}
    assert widths["kern-sandbox 0.2.49, kernel cell"] < widths["kern-sandbox 0.2.49, from prewarm"]
    assert "on a <machine>" in [each.text for each in tree.iter(f"{space}text")]


def test_a_chart_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        chart.svg([], "")


def test_what_the_limit_program_prints_becomes_milliseconds() -> None:
    found = limit.rows_of("fork\t100.0\t200.0\nall\t900.0\t1500.0\nfork\t300.0\t400.0\n")
    assert [each.key for each in found] == ["fork", "all"]
    assert found[0].cells[limit.RUNNING].median == 0.2
    assert found[1].cells[limit.GONE].median == 1.5


def test_only_growth_counts_as_left_behind() -> None:
    assert leftovers.grown({"mounts": 3, "processes": 5}, {"mounts": 3, "processes": 4}) == []
    assert leftovers.grown({"mounts": 3, "processes": 5}, {"mounts": 4, "processes": 5}) == ["mounts"]


@pytest.mark.parametrize("more", [["--only", "calls"], ["--quick"], ["--no-peer"]])
def test_a_part_of_a_run_is_not_written_into_the_page(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.options(["--write"]).write
    with pytest.raises(SystemExit):
        command.options(["--write", *more])
    assert "whole run" in capsys.readouterr().err


def test_page_and_chart_are_drawn_from_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(f"# Title\n{BEGIN}\n{END}\n")
    monkeypatch.setattr(command, "PAGE", str(tmp_path / "page.md"))
    monkeypatch.setattr(command, "CHART", str(tmp_path / "chart.svg"))
    machine = {"date": "today", "machine": "a machine", "Linux": "7.0"}
    command.draw(REPORT._replace(machine=machine))
    assert "(chart.svg)" in (tmp_path / "page.md").read_text()
    assert "a machine, Linux 7.0, today" in (tmp_path / "chart.svg").read_text()


def test_the_page_of_this_tree_has_its_place_and_its_figures_are_those_of_its_json() -> None:
    report = from_json(Path(command.JSON).read_text(encoding="utf-8"))
    page = Path(command.PAGE).read_text(encoding="utf-8")
    assert update(page, report.to_markdown("benchmarks/latest.svg")) == page
    assert Path(command.CHART).read_text(encoding="utf-8") == command.picture(report)


def test_the_image_holds_the_interpreter_its_library_and_what_they_load() -> None:
    places = rootfs.contents()
    assert places[rootfs.python()] == rootfs.python()
    assert any(place.endswith("/libc.so.6") for place in places)
    assert any(re.search(r"/python3\.\d+$", place) for place in places)


def test_the_layer_has_directories_links_files_and_no_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "tool"
    tool.write_text("x")
    monkeypatch.setattr(rootfs, "contents", lambda: {"/usr/bin/tool": str(tool)})
    rootfs.archive(str(tmp_path / "image.tar"))
    with tarfile.open(tmp_path / "image.tar") as image:
        manifest = json.load(image.extractfile("manifest.json") or pytest.fail("no manifest"))
        assert manifest[0]["RepoTags"] == [rootfs.NAME]
        with tarfile.open(fileobj=image.extractfile("layer.tar")) as layer:
            assert layer.getmember("usr/bin/tool").uid == 0
            assert layer.getmember("proc").isdir()


def test_a_worker_makes_calls_and_a_call_that_fails_has_no_time(tmp_path: Path) -> None:
    need_boxes()
    with Worker(ours(str(tmp_path))) as worker:
        worker.open("box")
        assert len(worker.calls(name="box", argv=["true"])(2)) == 2
        with pytest.raises(Missing, match="exit code 1"):
            worker.calls(name="box", argv=["false"])(1)
        with pytest.raises(Missing, match="KeyError"):
            worker.calls(name="another", argv=["true"])(1)
        assert worker.ask("at_once", name="box", count=3)["ms"]


def test_every_budget_names_rows_that_are_measured() -> None:
    keys = {each.key for each in ALL}
    assert {cell[0] for budget in BUDGETS for cell in (budget.cell, budget.base or budget.cell)} == keys
