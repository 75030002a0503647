"""Suites ship whole, and a bad file names its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.errors import InvalidInput
from solver.problem import Problem
from solver.suites import load_suite, suite_names


def test_the_suites_ship_with_every_shape() -> None:
    assert suite_names() == ("llm", "paper")
    assert len(set(load_suite("llm"))) == 96
    paper = load_suite("paper")
    assert len(set(paper)) == 512
    assert {size for p in paper for size in (p.m, p.n, p.k)} == set(range(128, 1025, 128))


def test_a_file_may_name_its_dtype(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("k,m,n,dtype\n\n8,1,2,fp16\n", "utf-8")
    assert load_suite(str(file)) == (Problem(1, 2, 8, "fp16"),)


def test_a_file_may_have_any_field_of_a_problem_and_leave_it_empty(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(
        "m,n,k,dtype,layout,out_dtype,lda,ldb,ldc,a_offset,b_offset,c_offset\n"
        "10,20,30,fp16,nt,fp32,11,22,33,1,2,3\n"
        "10,20,30,,,,,,,,,\n"
        "10,20,30,,tt, ,, 24 ,,,,7\n",
        "utf-8",
    )
    assert load_suite(str(file)) == (
        Problem(10, 20, 30, "fp16", "nt", "fp32", 11, 22, 33, 1, 2, 3),
        Problem(10, 20, 30),
        Problem(10, 20, 30, layout="tt", ldb=24, c_offset=7),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the header must name m, n, k"),
        ("m,n\n1,1\n", "line 1: the header must name m, n, k"),
        ("m,n,k,m\n", "line 1"),
        ("m,n,k,colour\n", "line 1"),
        ("m,n,k\n", "at least one problem"),
        ("m,n,k\n8,8,8\n8,8\n", "line 3: must have 3 cells, got 2"),
        ("m,n,k\n8,8,8.0\n", "line 2: k must be an integer"),
        ("m,n,k\n\n0,8,8\n", "line 3: m: must be between 1 and"),
        ("m,n,k,dtype\n8,8,8,fp64\n", "line 2: dtype: must be one of"),
        ("m,n,k,lda\n8,8,8,7\n", "line 2: lda: must be between k = 8 and"),
        ("m,n,k,ldb\n8,8,8,x\n", "line 2: ldb must be an integer"),
        ("m,n,k,ldb\n8,8,8,8.0\n", "line 2: ldb must be an integer"),
        ("m,n,k,layout\n8,8,8,tx\n", "line 2: layout: must be one of tn, nn, nt, tt"),
        ("m,n,k,out_dtype\n8,8,8,fp8\n", "line 2: out_dtype: must be one of bf16, fp16, fp32"),
        ("m,n,k,a_offset\n8,8,8,8\n", "line 2: a_offset: must be between 0 and 7"),
        ("m,n,k\n8,,8\n", "line 2: n must be an integer"),
        ("m,n,k\n8,8,8\n8,8," + "1" * 200_000, "line 3: is no CSV: field larger"),
        ("m,n,k\n8,8,8\n8,8," + "1" * 5000, "line 3: k must be an integer of at most 20"),
        ("m,n,k\n8,8,\u0668\n", "line 2: k must be an integer"),
        ("m,n,k\n8,8,1_0\n", "line 2: k must be an integer"),
        ('m,n,k\n8,8,8\n8,8,"1\n6"\n', "line 3: a cell must not hold a line break"),
        ('m,n,k\r\n8,8,"1\r\n6"\r\n', "line 2: a cell must not hold a line break"),
        ('m,n,"k\n"\n8,8,8\n', "line 1: a cell must not hold a line break"),
        ('m,n,k\n8,8,"8\n', "line 2: is no CSV"),
    ],
)
def test_a_bad_file_names_the_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_bytes(text.encode())
    with pytest.raises(InvalidInput, match=words) as caught:
        load_suite(str(file))
    assert caught.value.field == "suite"
    assert len(caught.value.message) < 300 + len(str(file))


def test_an_unknown_suite_lists_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="llm, paper or a CSV file"):
        load_suite("lmm")
