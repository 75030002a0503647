"""Settings are checked once, at start, and name what is wrong."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

import pytest

from app.settings import Settings, is_loopback, load_settings, unknown_variables
from solver.errors import InvalidInput


def test_the_defaults_listen_on_loopback() -> None:
    settings = load_settings({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.loopback


def test_the_environment_is_read_and_the_command_line_stands_above_it() -> None:
    environ = {"WARPWRIGHT_PORT": "9000", "WARPWRIGHT_ALLOWED_HOSTS": "a.example, B.example"}
    settings = load_settings(environ, port=None, workers=3)
    assert (settings.port, settings.workers) == (9000, 3)
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert load_settings(environ, port=1).port == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WARPWRIGHT_PORT", "tcp://10.0.0.1:8000"),
        ("WARPWRIGHT_PORT", "65536"),
        ("WARPWRIGHT_WORKERS", "0"),
        ("WARPWRIGHT_SOLVE_DEADLINE_S", "-1"),
        ("WARPWRIGHT_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=value) as caught:
        load_settings({name: value})
    assert caught.value.field == name
    with pytest.raises(InvalidInput) as caught:  # as the command line asks
        load_settings({name: value}, **{name.removeprefix("WARPWRIGHT_").lower(): None})
    assert caught.value.field == name


NUMBERS = {
    name: schema
    for name, schema in Settings.model_json_schema()["properties"].items()
    if schema["type"] in ("integer", "number")
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_breaks_its_limits_is_told_them(name: str) -> None:
    schema, variable = NUMBERS[name], f"WARPWRIGHT_{name.upper()}"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema["maximum"]
    kind = "an integer" if schema["type"] == "integer" else "a number"
    for given in (str(low - 1), str(high + 1), "many", ""):
        with pytest.raises(InvalidInput, match=rf" {low:.0f} and .*{high:.0f}, ") as caught:
            load_settings({variable: given})
        assert caught.value.field == variable
        assert caught.value.message.startswith(f"must be {kind} ")
        assert caught.value.message.endswith(f", got {given!r}")


@pytest.mark.parametrize("value", ["http://gpu.example", "gpu.example:8000", "*.example", "a b"])
def test_a_host_that_no_request_can_name_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="without scheme, port") as caught:
        load_settings({"WARPWRIGHT_ALLOWED_HOSTS": f"gpu.example,{value}"})
    assert caught.value.field == "WARPWRIGHT_ALLOWED_HOSTS"


def test_hosts_may_be_addresses() -> None:
    settings = load_settings({"WARPWRIGHT_ALLOWED_HOSTS": "10.0.0.7, [FD00::1], fd00::2"})
    assert settings.allowed_hosts == ("10.0.0.7", "fd00::1", "fd00::2")


CHOICES = {
    name: get_args(field.annotation)
    for name, field in Settings.model_fields.items()
    if get_origin(field.annotation) is Literal
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in CHOICES.items() for value in values]
)
def test_a_choice_is_taken_in_any_case(name: str, value: str) -> None:
    for written in (value.upper(), value.title()):
        assert getattr(load_settings({f"WARPWRIGHT_{name.upper()}": written}), name) == value


@pytest.mark.parametrize("written", ["TRUE", "True", "true", "ON", "Yes", "1"])
def test_a_yes_is_taken_in_any_case(written: str) -> None:
    assert load_settings({"WARPWRIGHT_METRICS_OPEN": written}).metrics_open


def test_a_wrong_argument_names_itself() -> None:
    with pytest.raises(InvalidInput) as caught:
        load_settings({}, workers=0)
    assert caught.value.field == "workers"


def test_variables_that_nothing_reads_are_told() -> None:
    environ = {"WARPWRIGHT_PROT": "1", "WARPWRIGHT_CACHE": "/x", "WARPWRIGHT_PORT": "1", "A": "b"}
    assert unknown_variables(environ) == ("WARPWRIGHT_PROT",)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("127.0.0.1.example", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
