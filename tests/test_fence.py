"""A quoted text cannot pose as anything but what it is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backscroll.fence import RECALLED, SUMMARY, fence, label, quote, unquote

PIECES = [
    "<",
    "/",
    ">",
    "&",
    "amp;",
    "lt;",
    "recalled",
    "SUMMARY",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\u2028",
    "\x85",
    "\x0b",
    "  ",
    "x",
    "小舟",
]
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


@given(TEXTS)
def test_quoting_can_be_undone(text):
    assert unquote(quote(text)) == text


@given(TEXTS)
def test_a_quoted_text_holds_no_tag_of_ours_in_any_spelling(text):
    assert not re.search(rf"<\s*/?\s*({RECALLED}|{SUMMARY})\b", quote(text), re.IGNORECASE)


@given(TEXTS)
def test_all_lines_of_a_quoted_text_but_the_first_are_indented(text):
    assert all(
        line.startswith("  ") for line in re.split(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", quote(text))[1:]
    )
    assert all(line.startswith("  ") for line in quote(text).splitlines()[1:])


@pytest.mark.parametrize("text", ["", "An ordinary line: 3 < 4 && x > y.", "<b>bold</b>", "it was recalled", "&lt;i>"])
def test_ordinary_text_is_quoted_as_it_is(text):
    assert quote(text) == text


@given(TEXTS)
def test_a_label_is_one_short_line_without_brackets(name):
    found = label(name)
    assert len(found.splitlines()) <= 1
    assert len(found) <= 64
    assert not set(found) & set("[]<>")
    assert label(found) == found


def test_a_fence_closes_with_its_own_name():
    assert fence(RECALLED, "A note.", "user: Hi!") == "<recalled>\nA note.\nuser: Hi!\n</recalled>"


def test_a_tag_that_never_comes_costs_no_more_than_its_length():
    for text in ("<" + " " * 200_000, "&lt;" + " " * 200_000, "< /" * 60_000, "&amp;" * 60_000):
        assert quote(text) == text  # a quadratic search would run for an hour
