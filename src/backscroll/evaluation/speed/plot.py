"""How a context's time grows with the history: a log-log plot with its slope. Needs the extra `plot`."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

from backscroll.evaluation.plot import need_plot
from backscroll.evaluation.speed.measure import Size

_INCHES = (8, 5)
_DOTS_PER_INCH = 150
_CURVES = ("context", "without embedder", "search", "embed query")


def slope(found: Sequence[Size], part: str = "context") -> float | None:
    """The exponent of growth: of the line through the logarithms of lines and median times; None of one size."""
    return _exponent([(one.lines, one.contexts[part].p50) for one in found if one.users == 1])


def slope_of_ratio(found: Sequence[Size], part: str = "context") -> float | None:
    """The same of medians over the yardstick's, so that the load of the machine takes less part in it."""
    return _exponent([(one.lines, one.ratios[part].p50) for one in found if one.users == 1 and one.ratios])


def plot(found: Sequence[Size], path: Path) -> None:
    """Draw the curves into a file; its ending says in which format. Raises: NotFoundError."""
    need_plot()
    import_module("matplotlib").use("Agg")  # no window
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=_INCHES, layout="constrained")
    grown = [one for one in found if one.users == 1]
    for part in _CURVES:
        exponent = slope(grown, part)
        label = part if exponent is None else f"{part}, slope {exponent:.2f}"
        axes.plot([one.lines for one in grown], [one.contexts[part].p50 for one in grown], marker="o", label=label)
    floor = [(one.lines, one.numpy.p50) for one in grown if one.numpy]
    if floor:
        axes.plot(*zip(*floor, strict=True), marker="x", linestyle=":", label="numpy, exact cosines alone")
    axes.set(xscale="log", yscale="log", xlabel="lines of the user", ylabel="milliseconds, median")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(path, dpi=_DOTS_PER_INCH)
    import_module("matplotlib.pyplot").close(figure)


def _exponent(points: Sequence[tuple[int, float]]) -> float | None:
    if len(points) < 2:
        return None
    lines, times = np.log10(np.array(points)).T
    return float(np.polyfit(lines, times, 1)[0])
