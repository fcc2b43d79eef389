"""The days that a question speaks of."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backscroll.dates import days_of
from backscroll.types import Days

NOW = date(2024, 1, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in May", [Days(month=5)]),
        ("May 2023?", [Days(month=5, year=2023)]),
        ("What happened in march, and in April of 2022", [Days(month=3), Days(month=4, year=2022)]),
        ("on the 3rd of June, 2022", [Days(month=6, day=3, year=2022)]),
        ("July 4th", [Days(month=7, day=4)]),
        ("since 2023-05-07", [Days(month=5, day=7, year=2023)]),
        ("backups of 2024-01", [Days(month=1, year=2024)]),
        ("What may she do?", []),
        ("They march on.", []),
        ("meet me at 5", []),
        ("", []),
    ],
)
def test_named_days_are_found(text, expected):
    assert sorted(days_of(text), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("yesterday", date(2024, 1, 9), date(2024, 1, 9)),
        ("two weeks ago", date(2023, 12, 24), date(2023, 12, 30)),
        ("a month ago", date(2023, 11, 26), date(2023, 12, 26)),
        ("last week", date(2023, 12, 28), date(2024, 1, 5)),
    ],
)
def test_words_that_count_back_need_to_know_from_when(text, first, last):
    assert days_of(f"What did I say {text}?", NOW) == (Days(first=first, last=last),)
    assert days_of(f"What did I say {text}?") == ()


@given(st.text() | st.from_regex(r"(in|on)? ?(May|2023-\d\d-\d\d|\d{1,12} (days|months) ago)"))
def test_no_text_is_too_strange(text):
    for now in (None, date.min, NOW):
        assert all(isinstance(days, Days) for days in days_of(text, now))
