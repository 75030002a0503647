"""Nsight Compute's CSV: both pages say the same of a launch, and what is no export is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.advice import ncu
from solver.advice.figures import KernelFigures
from solver.advice.ncu import read_launch, read_launches
from solver.advice.ncu_metrics import figures_of
from solver.device import load_profile
from solver.errors import InvalidInput
from tests.solver.ncu_exports import COLUMNS, DETAILS_HEADER, NAMES, PREFACE, ROWS, details, raw

H200 = load_profile("h200")
FULL = KernelFigures(
    threads_per_block=128,
    registers_per_thread=255,
    grid_blocks=4096,
    read_bytes=536_870_000,
    written_bytes=530_110_000,
    smem_per_block_bytes=4100,
    time_us=640.0,
    flops=17e9,
    resident_warps=7.91,
    long_scoreboard_fraction=0.65,
    barrier_fraction=0.05,
    issue_fraction=0.213,
    compute_fraction=0.3825,
    memory_fraction=0.347,
    l2_hit_fraction=0.501,
)


def figures(text: str, kernel: str | None = None) -> KernelFigures:
    return figures_of(read_launch(text, kernel), H200)[0]


def refused(text: str, kernel: str | None = None) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as refusal:
        figures(text, kernel)
    return refusal.value.field, refusal.value.message


def held(found: KernelFigures, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        assert getattr(found, name) == (
            value if isinstance(value, str | None) else pytest.approx(value)
        ), name


def test_the_raw_page_has_every_figure() -> None:
    launch = read_launch(raw())
    assert (launch.id, launch.kernel) == ("1", NAMES["1"])
    found, notes = figures_of(launch, H200)
    held(found, FULL.to_dict())
    assert notes == []


def test_the_details_page_has_what_it_shows() -> None:
    found, notes = figures_of(read_launch(details()), H200)
    moved = 1667.16e9 * 640e-6
    unknown = dict.fromkeys(("flops", "long_scoreboard_fraction", "barrier_fraction"))
    held(found, FULL.to_dict() | unknown | {"read_bytes": round(moved), "written_bytes": 0})
    assert notes == [
        "dram__bytes_read.sum is not in the export: all that memory moved is taken to be read."
    ]


def test_a_page_with_a_row_for_each_metric_may_have_the_metrics_own_names() -> None:
    rows = tuple(("Command line profiler metrics", name, *rest) for name, rest in COLUMNS.items())
    held(figures(details(rows)), FULL.to_dict())


def replaced(**changed: tuple[str, str] | None) -> str:
    """The raw page with metrics changed or left out; ``__`` in names as they are, dots as ``_``."""
    names = {name.replace(".", "_"): name for name in COLUMNS}
    columns = dict(COLUMNS)
    for short, value in changed.items():
        if value is None:
            del columns[names[short]]
        else:
            columns[names[short]] = value
    return raw(columns)


@pytest.mark.parametrize(
    ("unit", "text", "time_us"),
    [
        ("ns", "640,000", 640),
        ("nsecond", "640000", 640),
        ("usecond", "1,234.5", 1234.5),
        ("msecond", "1.5", 1500),
        ("second", "1e-3", 1000),
    ],
)
def test_units_and_separators_are_read(unit: str, text: str, time_us: float) -> None:
    assert figures(replaced(gpu__time_duration_sum=(unit, text))).time_us == pytest.approx(time_us)


def test_stalls_are_shares_however_they_were_counted() -> None:
    ratio = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
    barrier = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
    others = {name: value for name, value in COLUMNS.items() if name not in (ratio, barrier)}
    percent = {"smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct": ("%", "42.0")}
    assert figures(raw(others | percent)).long_scoreboard_fraction == pytest.approx(0.42)
    sampled = {
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard": ("", "300"),
        "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued": ("", "290"),
        "smsp__pcsamp_warps_issue_stalled_barrier": ("", "100"),
        "smsp__pcsamp_warps_issue_stalled_selected": ("", "600"),
    }
    found = figures(raw(others | sampled))
    assert found.long_scoreboard_fraction == pytest.approx(0.3)
    assert found.barrier_fraction == pytest.approx(0.1)
    assert figures(raw(others)).long_scoreboard_fraction is None


def test_what_is_not_available_is_not_known() -> None:
    text = replaced(
        lts__t_sector_hit_rate_pct=("%", "n/a"),
        sm__warps_active_avg_per_cycle_active=("warp", ""),
        smsp__issue_active_avg_pct_of_peak_sustained_active=("%", "nan"),
    )
    found = figures(text)
    assert (found.l2_hit_fraction, found.resident_warps, found.issue_fraction) == (None,) * 3


@pytest.mark.parametrize(
    ("kernel", "found"), [("1", "1"), ("transform", "1"), (NAMES["1"], "1"), ("2", "2")]
)
@pytest.mark.parametrize("page", [raw, details])
def test_a_launch_is_chosen_by_its_id_or_its_kernels_name(
    page: Any, kernel: str, found: str
) -> None:
    text = page(ids=("0", "1", "2"))
    assert [launch.id for launch in read_launches(text)] == ["0", "1", "2"]
    assert read_launch(text, kernel).id == found


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (None, "must name one launch by its ID; there are 0: void copy_rows"),
        ("copy_rows", "must name one launch by its ID; there are 0: void copy_rows"),
        ("gemm", "must be an ID, a name or a part of one: void copy_rows"),
        ("7", "must be an ID, a name or a part of one: void copy_rows"),
    ],
)
def test_a_choice_that_is_none_lists_what_there_is(kernel: str | None, words: str) -> None:
    field, message = refused(raw(ids=("0", "1", "2")), kernel)
    assert field == "kernel"
    assert message.startswith(words)


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("launch__registers_per_thread", "launch__registers_per_thread, Registers Per Thread"),
        ("launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block"),
        ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_static"),
        ("dram__bytes_read_sum", "dram__bytes_read.sum, dram__bytes.sum, dram__bytes.sum.per_sec"),
    ],
)
def test_a_metric_that_is_missing_is_named(missing: str, named: str) -> None:
    field, message = refused(replaced(**{missing: None}))
    assert field == "ncu_csv"
    assert named in message
    assert "ncu --set full" in message


def test_a_time_is_needed_only_where_a_rate_is_all_there_is() -> None:
    assert figures(replaced(gpu__time_duration_sum=None)).time_us is None
    rows = tuple(row for row in ROWS if row[1] != "Duration")
    assert "has none of dram__bytes_read.sum" in refused(details(rows))[1]


@pytest.mark.parametrize(
    ("unit", "text", "words"),
    [
        ("us", "fast", "gpu__time_duration.sum must be a number, got 'fast'"),
        ("us", "640,00", "640,00: numbers must have a decimal point; export with LC_ALL=C"),
        ("ns", "640.000.123", "numbers must have a decimal point"),
        ("us", "0,640", "0,640: numbers must have a decimal point; export with LC_ALL=C"),
        ("ns", "1.234,5", "numbers must have a decimal point"),
        ("us", "1,23,456", "must be a number"),
        ("us", "9" * 400, "must be no less than 0 and finite"),
        ("us", "-5", "must be no less than 0 and finite"),
        ("inf", "5", "gpu__time_duration.sum must be in ns, us"),
        ("us", "0x10", "must be a number"),
        ("us", "1_000", "must be a number"),
    ],
)
def test_a_number_that_is_none_is_refused(unit: str, text: str, words: str) -> None:
    field, message = refused(replaced(gpu__time_duration_sum=(unit, text)))
    assert field == "ncu_csv"
    assert words in message
    assert len(message) < 300


def test_a_european_number_anywhere_in_the_launch_gives_the_locale_away() -> None:
    text = replaced(
        gpu__time_duration_sum=("ns", "640.000"), lts__t_sector_hit_rate_pct=("%", "50,1")
    )
    assert "LC_ALL=C" in refused(text)[1]


PERCENTAGES = [name for name, (unit, _) in COLUMNS.items() if unit == "%"]


@pytest.mark.parametrize("name", PERCENTAGES)
def test_a_percentage_may_exceed_a_hundred_by_a_little_alone(name: str) -> None:
    """34,725 may be thirty-four with a decimal comma, and is no percentage either way."""
    assert figures(raw(COLUMNS | {name: ("%", "101.3")})).time_us == 640
    for text in ("34,725", "151"):
        field, message = refused(raw(COLUMNS | {name: ("%", text)}))
        assert field == "ncu_csv"
        assert message.startswith(f"{name} must be at most 100 %")
        assert "LC_ALL=C" in message


def test_a_stall_is_no_longer_than_all_of_a_warps_time() -> None:
    ratio = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
    assert figures(raw(COLUMNS | {ratio: ("", "7.6")})).long_scoreboard_fraction == 0.95
    field, message = refused(raw(COLUMNS | {ratio: ("", "5,200")}))
    assert field == "ncu_csv"
    assert "stall long_scoreboard" in message


@pytest.mark.parametrize("name", [name for name in COLUMNS if not name.endswith("_size")])
def test_a_unit_that_is_none_is_told_in_a_message_that_can_be_read(name: str) -> None:
    field, message = refused(raw(COLUMNS | {name: ("furlong", "1")}))
    assert field == "ncu_csv"
    assert message.startswith(f"{name} must be in ")
    assert message.endswith("got 'furlong'")
    assert len(message) < 220


def test_another_gpus_export_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"capability is 9\.0, a100's is 8\.0") as refusal:
        figures_of(read_launch(raw()), load_profile("a100"))
    assert refusal.value.field == "device"


HEADER = '"ID","Kernel Name","gpu__time_duration.sum"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no header"),
        (PREFACE, "has no header"),
        ("Kernel Name\n", "has no header with ID and Kernel Name"),
        (HEADER, "has no launch"),
        (HEADER + '"","","us"\n', "has no launch"),
        (HEADER + '"0","k","5"\n', "row 2 must have the units, and no ID"),
        (HEADER + '"","","us"\n"0","k"\n', "row 3 must have 3 values as the header has, got 2"),
        (HEADER + '"","","us"\n"0","k","5","6"\n', "got 4"),
        (HEADER + '"","","us"\n"0","k","5"\n"0","k","6"\n', "has the ID 0 twice"),
        (HEADER + '"","","us"\n"0","","5"\n', "every row must have ID and Kernel Name"),
        (HEADER + '"","","us"\n"0","k,5\n', "is no CSV"),
        (HEADER + '"","","us"\n"0","k"x,"5"\n', "is no CSV"),
        (HEADER + '"","","us"\n"0","k","' + "5" * 200_000 + '"\n', "is no CSV: field larger"),
        ('"ID","Kernel Name","a","a"\n', "has the column a twice"),
        ('"ID","Kernel Name",' + ",".join(f'"{n}"' for n in range(10_001)), "at most 10000 col"),
        (DETAILS_HEADER + '"0","1","p","h","a"\n"0","1","p","h","b"\n', "stands for two kernels"),
        (DETAILS_HEADER + '"0","1","p","h","k"\n', "has none of dram__bytes_read.sum"),
        ("x" * (ncu.MAX_CHARS + 1), "must have at most 16777216 characters"),
        (
            HEADER + '"","","us"\n' + '"0","k","5"\n' * 2,
            "has the ID 0 twice",
        ),
    ],
)
def test_what_is_no_export_is_refused(text: str, words: str) -> None:
    field, message = refused(text)
    assert field == "ncu_csv"
    assert words in message
    assert len(message) < 400


def test_rows_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "MAX_ROWS", 10)
    assert "at most 10 rows" in refused(details())[1]


def test_a_byte_order_mark_and_dos_line_ends_are_taken() -> None:
    for page in (raw, details):
        text = page().removeprefix(PREFACE)
        launch = read_launch("\ufeff" + text.replace("\n", "\r\n"))
        assert launch.metrics == read_launch(text).metrics


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=200),
    st.sampled_from([raw(), details(), HEADER, DETAILS_HEADER]),
    st.integers(0, 6000),
    st.integers(0, 200),
)
def test_any_text_is_read_or_refused(junk: str, page: str, at: int, cut: int) -> None:
    for text in (junk, page[:at] + junk + page[at + cut :]):
        with suppress(InvalidInput):
            figures(text)
