"""A hundred of the hostile cases of `fuzz_tables.py`, which runs any number of them."""

import typing

import pytest

import fuzz_tables
from varprop.cli import shared

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_none_is_badly_met():
    codes, bad = fuzz_tables.run_cases(range(100))
    assert not bad
    assert codes.total() == 100
    assert {code for _, code in codes} >= {0, 2, 3}  # it comes past the first check


def test_what_is_badly_met_is_counted(monkeypatch):
    """Errors that are no sentences, and control characters, are seen."""

    def stop(*sentences, code) -> typing.NoReturn:
        print("\x1b[31moops")
        raise SystemExit(1)

    monkeypatch.setattr(shared, "_stop", stop)
    _, bad = fuzz_tables.run_cases(range(12))
    wrong = " ".join(line for _, _, lines in bad for line in lines)
    assert "ended with 1" in wrong
    assert "control characters" in wrong
