"""The settings of the stages: what is one, and what is refused where they are made."""

import json
import re
from dataclasses import asdict, fields, replace

import pytest

from backscroll import PRESETS, MessageError, NotFoundError, Settings
from backscroll.settings import open_preset

COUNT = "a whole number not below 0"
COUNT_OR_NONE = f"{COUNT}, or None"
SHARE = "a share, between 0 and 1"
PAIR = "a pair of whole numbers not below 0"
SIMILARITY = "a cosine, or one of p90, p95, p99, p99.9"
NAN = float("nan")
WRONG = {
    "sink_messages": (COUNT, [True, "1", 1.0, None, -1]),
    "window_share": (SHARE, ["half", None, NAN, True, 1.1, -0.1]),
    "window_step_share": (SHARE, ["half", None, NAN, False, 1.1, -0.1]),
    "window_tokens": (COUNT_OR_NONE, [False, "1000", 0.5, -1]),
    "window_messages": (COUNT_OR_NONE, [True, "2", 2.0, -1]),
    "window_unit": ("one of exchange, message", [None, "line", ["message"], 1]),
    "skip_oversized": ("True or False", [0, 1, None, "no"]),
    "reply_tokens": (COUNT, [True, "1", NAN, None, -1]),
    "summary_share": (SHARE, ["all", None, NAN, True, 2, -1]),
    "summary_trigger_tokens": (COUNT, [True, "1", 1e3, None, -1]),
    "recall_lines": (COUNT_OR_NONE, [True, "all", 2.5, -1]),
    "contextualizer": ("one of none, blend, trained, rewrite, multi, hyde", [None, "clever", {}, False]),
    "min_similarity": (SIMILARITY, [None, "p50", NAN, True, "0.4", (0.4,), float("inf")]),
    "recall_unit": ("one of message, exchange", [None, "line"]),
    "recall_roles": ("one of both, user, assistant", [None, "system"]),
    "fusion": ("one of hybrid, dense", [None, "words"]),
    "neighbors": (PAIR, [3, None, "33", (3,), (1, 2, 3), [3], [3, 1.5], (1, True), (0, 1.5), (-1, 0)]),
    "buffer_blocks": (COUNT, [True, 1.5, None, "10", -1]),
    "recalled_as": ("one of block, preface, messages", [None, "system"]),
    "merge_roles": ("True or False", [0, 1, None, "no"]),
}


def test_no_setting_is_unchecked():
    assert list(WRONG) == [field.name for field in fields(Settings)]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name][1]])
def test_a_setting_that_cannot_be_is_refused_by_its_name_what_it_is_and_what_was_given(name, value):
    said = f"{name} is {WRONG[name][0]}, not {value!r}"
    with pytest.raises(MessageError, match=f"^{re.escape(said)}$"):
        replace(PRESETS["backscroll"], **{name: value})


def test_the_ends_of_what_is_allowed_are_allowed():
    least = Settings(window_share=0, window_step_share=0.0, summary_share=0, min_similarity=-1, recall_lines=0)
    most = Settings(window_share=1, window_step_share=1.0, summary_share=1, min_similarity=1.0, recall_lines=None)
    assert (least.window_share, most.window_share) == (0, 1)


def test_a_step_above_the_windows_share_is_refused():
    with pytest.raises(MessageError, match=r"window_step_share is not above window_share, as 0\.5 is above 0\.4"):
        Settings(window_share=0.4, window_step_share=0.5)


@pytest.mark.parametrize("name", ["mine", None, ["backscroll"], 7])
def test_what_names_no_preset_is_refused_with_those_that_there_are(name):
    with pytest.raises(NotFoundError, match="backscroll, pruning"):
        open_preset(name)


def test_settings_come_back_from_json():
    chosen = Settings(neighbors=(3, 3))
    assert Settings(**json.loads(json.dumps(asdict(chosen)))) == chosen
