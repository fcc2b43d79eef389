"""How a context's time grows with the history: a log-log plot with its slope. Needs the extra `plot`."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from backscroll.evaluation.plot import need_plot
from backscroll.evaluation.speed.measure import Size

_INCHES = (9.5, 5.5)
_DOTS_PER_INCH = 150
# told apart by people who see colors differently (Okabe and Ito)
_CURVES: Mapping[str, Mapping[str, Any]] = {
    "context": {"color": "#000000", "linewidth": 2.6, "marker": "o", "zorder": 5},
    "without embedder": {"color": "#0072B2", "marker": "s"},
    "search": {"color": "#D55E00", "marker": "^"},
    "embed query": {"color": "#009E73", "marker": "D"},
}
_LATE = {"color": "#000000", "linewidth": 1, "linestyle": "--", "marker": "_"}
_MANY = {"color": "#000000", "linestyle": "", "marker": "o", "markerfacecolor": "#FFFFFF", "zorder": 6}
_FLOOR = {"color": "#777777", "linestyle": ":", "marker": "x"}
_YARDSTICK = {"color": "#BBBBBB", "linewidth": 5, "zorder": 0, "solid_capstyle": "round"}

Points = Sequence[tuple[int, float]]


def slope(found: Sequence[Size], part: str = "context") -> float | None:
    """The exponent of growth: of the line through the logarithms of lines and median times; None of one size."""
    return exponent_of([(one.lines, one.contexts[part].p50) for one in found if one.users == 1])


def slope_of_ratio(found: Sequence[Size], part: str = "context") -> float | None:
    """The same of medians over the yardstick's, so that the load of the machine takes less part in it."""
    return exponent_of([(one.lines, one.ratios[part].p50) for one in found if one.users == 1 and one.ratios])


def plot(found: Sequence[Size], path: Path, yardstick: str | None = None) -> None:
    """Draw the curves into a file; its ending says in which format. Raises: NotFoundError."""
    need_plot()
    import_module("matplotlib").use("Agg")  # no window
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=_INCHES, layout="constrained")
    grown = [one for one in found if one.users == 1]
    _draw(axes, "context, p99", [(one.lines, one.contexts["context"].p99) for one in grown], _LATE)
    for part, style in _CURVES.items():
        _draw(axes, part, [(one.lines, one.contexts[part].p50) for one in grown], style)
    _draw(axes, "numpy, exact cosines alone", [(one.lines, one.numpy.p50) for one in grown if one.numpy], _FLOOR)
    asked = [(one.lines, one.yardstick.p50) for one in grown if one.yardstick]
    _draw(axes, f"one query by {yardstick}", asked, _YARDSTICK)
    for one in found:
        if one.users > 1:
            label = f"context of one of {one.users:,} users,\n{one.lines // one.users:,} lines each"
            axes.plot([one.lines], [one.contexts["context"].p50], label=label, **_MANY)
    axes.set(xscale="log", yscale="log", xlabel="lines in the store", ylabel="ms, median where nothing else is said")
    number_axes(axes, [one.lines for one in found])
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
    import_module("matplotlib.pyplot").close(figure)


def _draw(axes: Any, name: str, points: Points, style: Mapping[str, Any]) -> None:
    """A curve with its slope, where there is one."""
    if points:
        exponent = exponent_of(points)
        label = name if exponent is None else f"{name}, slope {exponent:z.2f}"
        axes.plot(*zip(*points, strict=True), label=label, **style)


def number_axes(axes: Any, sizes: Sequence[int]) -> None:
    """Whole numbers at both axes instead of powers of ten: each size, and 1, 2 and 5 times those powers."""
    ticker = import_module("matplotlib.ticker")
    axes.set_xticks(sorted(set(sizes)), [f"{lines:,}" for lines in sorted(set(sizes))])
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(ticker.NullLocator())
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def exponent_of(points: Points) -> float | None:
    """Of the line through the logarithms of points; None of fewer than two."""
    if len(points) < 2:
        return None
    lines, times = np.log10(np.array(points)).T
    return float(np.polyfit(lines, times, 1)[0])
