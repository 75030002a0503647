"""The page in a real browser, asked of a real service (make test-browser)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.keys import Scope
from app.store.keys import KeyStore
from bench.browser import browser, missing
from bench.page_picture import page_service
from bench.service_process import ServiceProcess
from tests.app.conftest import application
from tests.app.live import services_of, serving

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=missing() or "a browser is there"),
]

REFUSED = "the server responded with a status of 4"
"""What Chromium itself logs of every refusal that a page is told."""


@pytest.fixture(scope="module")
def served() -> Iterator[ServiceProcess]:
    with page_service() as service:
        yield service


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@contextmanager
def opened_page(chromium: Any, port: int, width: int = 1000, **options: Any) -> Iterator[Any]:
    """The page, in a profile of its own. What the browser says against it fails the test."""
    said: list[str] = []
    context = chromium.new_context(viewport={"width": width, "height": 800}, **options)
    context.add_init_script(
        "addEventListener('securitypolicyviolation', (event) => "
        "console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.goto(f"http://127.0.0.1:{port}/")
    try:
        yield page
    finally:
        context.close()
    wrong = [words for words in said if words.startswith(("error", "warning"))]
    assert [words for words in wrong if REFUSED not in words] == []


@pytest.fixture
def page(chromium: Any, served: ServiceProcess) -> Iterator[Any]:
    with opened_page(chromium, served.port) as opened:
        yield opened


def answered(page: Any) -> Any:
    """The answer that the page shows, once it does."""
    page.wait_for_selector("#answer:visible")
    return json.loads(page.inner_text("#json"))


def ask(page: Any) -> Any:
    page.click("#ask")
    return answered(page)


def fault(page: Any, control: str) -> str:
    """What is said beside a control, which has the focus."""
    page.wait_for_selector(f"#{control}[aria-invalid=true]")
    assert page.evaluate("document.activeElement.id") == control
    return str(page.inner_text(f"#{control}-error"))


def test_the_answer_is_the_services(page: Any, served: ServiceProcess) -> None:
    answer = ask(page)
    question = {"m": 4096, "n": 4096, "k": 4096, "top_k": 4}
    assert (200, answer) == served.ask("POST", "/v1/optimize", question)
    config, predicted = answer["config"], answer["predicted"]
    shape = "×".join(str(config[f"tile_{letter}"]) for letter in "mnk")
    assert page.inner_text("#pick").startswith(f"{shape}, {config['stages']} stages, ")
    words = page.inner_text("#words")
    assert f"{predicted['time_us']:.1f} µs" in words
    assert f"Proved best: Z3 excluded the {answer['proof']['space']['legal'] - 1:,}" in words
    assert page.locator("#alternatives tr").count() == len(answer["alternatives"]) == 3
    assert page.evaluate("document.activeElement.id") == "pick"


def test_the_bar_is_the_breakdown(page: Any) -> None:
    predicted = ask(page)["predicted"]
    shares = [us / predicted["time_us"] for us in predicted["breakdown"].values() if us > 0]
    whole = page.locator("#bar").bounding_box()["width"]
    pieces = [piece.bounding_box()["width"] / whole for piece in page.locator("#bar span").all()]
    assert sorted(pieces) == pytest.approx(sorted(shares), abs=0.02)
    assert sum(pieces) == pytest.approx(1, abs=0.01)
    assert page.locator("#parts li").count() == len(shares)


def test_a_wrong_value_is_told_beside_its_field_and_can_be_mended(page: Any) -> None:
    page.fill("#gemm-n", "0")
    page.click("#ask")
    assert fault(page, "gemm-n").startswith("must be between 1 and 2147483647")
    assert page.inner_text("#gemm-m-error") == ""
    page.fill("#gemm-n", "64.5")
    page.click("#ask")
    page.wait_for_selector("#gemm-n-error:has-text('64.5')")
    page.fill("#gemm-n", "64")
    assert ask(page)["problem"]["n"] == 64
    assert page.locator("[aria-invalid]").count() == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "must be JSON: "),
        ('{"smem_bytes": {"max": "a"}}', "constraints.smem_bytes.max: must be an integer"),
        ('{"smem_bytes": {"max": 10}}', "no legal configuration satisfies"),
    ],
)
def test_what_is_wrong_with_constraints_is_told_beside_them(
    page: Any, text: str, words: str
) -> None:
    page.click("summary:visible")
    page.fill("#gemm-constraints", text)
    page.click("summary:visible")  # folded away again
    page.click("#ask")
    assert words in fault(page, "gemm-constraints")


def test_constraints_are_asked_and_those_left_out_are_counted(page: Any) -> None:
    page.click("summary:visible")
    page.fill("#gemm-constraints", '{"smem_bytes": {"max": 100000}}')
    answer = ask(page)
    assert answer["constraints"] == {"smem_bytes": {"max": 100000}}
    left_out = answer["proof"]["space"]["excluded_by_constraints"]
    assert f"{left_out:,} more are legal and left out by the constraints" in page.inner_text(
        "#words"
    )


def test_a_device_without_a_kernel_family_is_answered_by_the_published_model(page: Any) -> None:
    page.select_option("#gemm-device", "mi300x")
    page.click("#ask")
    assert "with model paper it can be asked" in fault(page, "gemm-device")
    page.click("summary:visible")
    page.select_option("#gemm-model", "paper")
    answer = ask(page)
    assert answer["kernel"]["registers_per_thread"] is None
    assert "null" not in page.inner_text("#words") + page.inner_text("#listed")
    assert f"on {answer['device']['title']}." in page.inner_text("#words")


def test_rows_are_asked_about_too(page: Any, served: ServiceProcess) -> None:
    page.check("input[value=norm_activation]")
    page.fill("#norm_activation-rows", "4096")
    page.select_option("#norm_activation-norm", "rms")
    question = {
        "op": "norm_activation",
        "rows": 4096,
        "width": 1024,
        "norm": "rms",
        "top_k": 4,
    }
    answer = ask(page)
    assert (200, answer) == served.ask("POST", "/v1/optimize", question)
    assert answer["specialising"] in page.inner_text("#words")


def test_the_commands_shown_give_the_answer_shown(page: Any) -> None:
    page.select_option("#gemm-layout", "tt")
    page.click("summary:visible")
    page.fill("#gemm-constraints", '{"config": {"tile_m": {"in": [64, 128]}}}')
    answer = ask(page)
    command = page.inner_text("#command")
    assert command.startswith("warpwright optimize 4096 4096 4096 --layout tt ")
    for words in (page.inner_text("#curl"), command):
        run = f'warpwright() {{ "{sys.executable}" -m app.cli.main "$@"; }}; {words}'
        done = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == answer


def test_the_keyboard_is_enough(page: Any) -> None:
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.id") != "gemm-k":
        assert page.evaluate("document.activeElement !== document.body"), "there is no way to k"
        page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("1024")
    page.keyboard.press("Enter")
    assert answered(page)["problem"]["k"] == 1024
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.copies") == "command":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#status:not(:empty)")
    assert page.evaluate("getSelection().toString()") == page.inner_text("#command")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen_in_either_colours(
    chromium: Any, served: ServiceProcess, scheme: str
) -> None:
    with opened_page(chromium, served.port, 360, color_scheme=scheme) as page:
        for op in ("gemm", "norm_activation"):
            page.check(f"input[value={op}]")
            page.click("summary:visible")
            ask(page)
            assert page.evaluate("document.documentElement.scrollWidth") == 360
        red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
        assert (red > 128) is (scheme == "light")


def test_a_key_is_asked_for_kept_in_the_tab_alone_and_never_shown(chromium: Any) -> None:
    with application(require_keys="always") as app, serving(app) as port:
        store = KeyStore(services_of(app).database)
        _, key = store.create("test", frozenset([Scope.OPTIMIZE]))
        with opened_page(chromium, port) as page:
            page.click("#ask")
            page.wait_for_selector("#key-value[aria-invalid=true]")
            assert "a key is needed" in page.inner_text("#key-error")
            page.fill("#key-value", key)
            ask(page)
            shown = page.inner_text("body")
            assert key not in shown
            assert "$WARPWRIGHT_API_KEY" in shown
            assert page.evaluate("[document.cookie, localStorage.length]") == ["", 0]
            page.reload()
            assert ask(page)["problem"]["m"] == 4096


def test_a_service_that_has_gone_is_told(chromium: Any) -> None:
    with page_service() as gone:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{gone.port}/")
        gone.kill()
        page.click("#ask")
        page.wait_for_selector("#problem:visible")
        assert "can't be reached" in page.inner_text("#problem")
        context.close()
