"""A text's terms: words folded and stemmed, pairs of characters where a script has no spaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backscroll.terms import STOP_WORDS, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("The and of it", []),
        ("Vans, VAN; van's!", ["van", "van", "van"]),
        ("running runs", ["run", "run"]),
        ("café CAFE ｃａｆé", ["cafe", "cafe", "cafe"]),
        ("route_efficiency A-12", ["rout", "effici", "12"]),
        ("'rock'n'roll' o''clock", ["rocknrol", "o", "clock"]),
        ("depot\x1c\x00gate\x7f", ["depot", "gate"]),
        ("明天发车", ["明天", "天发", "发车"]),
        ("車", ["車"]),
        ("ルート計算", ["ルー", "ート", "ト計", "計算"]),
        ("vans在六点leave", ["van", "在六", "六点", "leav"]),
        ("🚚", []),
    ],
)
def test_a_text_has_these_terms(text, expected):
    assert terms(text) == expected


def test_the_voice_marks_of_kana_make_other_words():
    assert terms("かき") != terms("がき")


@given(st.text(max_size=80))
def test_terms_are_the_same_for_any_case_and_are_never_empty_or_long(text):
    found = terms(text)
    assert all(0 < len(term) <= 40 for term in found)
    assert terms(text) == found
    assert all(not term.isspace() for term in found)


@given(st.lists(st.sampled_from(["van", "depot", "明天", "🚚", "the"]), max_size=8))
def test_terms_of_words_are_the_terms_of_each_word(words):
    assert terms(" ".join(words)) == [term for word in words for term in terms(word)]


@given(st.text(st.characters(codec="ascii"), max_size=80))
def test_ascii_has_the_terms_that_it_has_beside_other_scripts(text):
    assert [*terms(text), "明天"] == terms(f"{text} 明天")


def test_the_same_text_has_the_same_terms_when_more_words_came_than_are_remembered():
    before = terms("running vans, 明天发车")
    for number in range(70_000):
        terms(f"word{number}")
    assert terms("running vans, 明天发车") == before


def test_stop_words_are_written_as_they_are_folded():
    assert all(terms(word) == [] for word in STOP_WORDS)
