"""Evidence recall against the tokens sent, one curve per preset. Needs the extra `plot`."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from backscroll.errors import NotFoundError
from backscroll.evaluation.figures import Figures

_INCHES = (8, 5)
_DOTS_PER_INCH = 150


def need_plot() -> None:
    """Say what to install where the plot cannot be drawn. Raises: NotFoundError."""
    if find_spec("matplotlib") is None:
        raise NotFoundError("a plot needs matplotlib: pip install 'backscroll[plot]'")


def plot(found: Sequence[Figures], path: Path) -> None:
    """Draw the curves into a file; its ending says in which format. Raises: NotFoundError."""
    need_plot()
    import_module("matplotlib").use("Agg")  # no window
    figure, axes = import_module("matplotlib.pyplot").subplots(figsize=_INCHES, layout="constrained")
    for preset in dict.fromkeys(one.preset for one in found):
        points = [
            (one.tokens, one.evidence_recall)
            for one in found
            if one.preset == preset and one.evidence_recall and one.tokens
        ]
        means = [recall.mean for _, recall in points]
        below = [recall.mean - recall.low for _, recall in points]
        above = [recall.high - recall.mean for _, recall in points]
        tokens = [mean for mean, _ in points]
        axes.errorbar(tokens, means, yerr=(below, above), marker="o", capsize=3, label=preset)
    axes.set_xlabel("tokens sent, mean")
    axes.set_ylabel("evidence recall, 95 % bootstrap interval")
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=_DOTS_PER_INCH)
    import_module("matplotlib.pyplot").close(figure)
