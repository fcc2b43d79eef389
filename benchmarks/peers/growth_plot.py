"""How the time of a question grows with the history, one curve for each system, both axes logarithmic.

    python benchmarks/peers/growth_plot.py OUT.json docs/growth.png

Times are told over that of the embedding of the question, which all of them contain: it does not grow with the history,
so that what it grows by is the load of the machine, and the slopes are free of it. A color is a peer; dotted is what a
user could write.
Needs matplotlib: pip install 'backscroll[plot]'.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from backscroll.evaluation.plot import need_plot
from backscroll.evaluation.speed.plot import exponent_of, number_axes

EMBEDDING = "embedding of the question"
_INCHES = (9.5, 5.5)
_DOTS_PER_INCH = 150
# told apart by people who see colors differently (Okabe and Ito); dashed or solid tells a peer's two ways apart
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "backscroll": {"color": "#000000", "marker": "o", "linewidth": 2.6, "zorder": 5},
    "backscroll, its list packed alike": {"color": "#000000", "marker": "o", "linewidth": 1.4, "linestyle": "--"},
    "LangChain vector": {"color": "#0072B2", "marker": "s"},
    "LangGraph vector": {"color": "#56B4E9", "marker": "D"},
    "LlamaIndex vector": {"color": "#009E73", "marker": "^"},
    "mem0 vector": {"color": "#E69F00", "marker": "v", "linestyle": "--"},
    "mem0 hybrid": {"color": "#E69F00", "marker": "v"},
    "MemPalace vector": {"color": "#CC79A7", "marker": "P", "linestyle": "--"},
    "MemPalace hybrid": {"color": "#CC79A7", "marker": "P"},
    "MemPalace chroma vector": {"color": "#D55E00", "marker": "X"},
    "numpy, exact": {"color": "#777777", "marker": "x", "linestyle": ":"},
    "sqlite-vec, exact": {"color": "#777777", "marker": "+", "linestyle": ":"},
    EMBEDDING: {"color": "#BBBBBB", "linestyle": "-", "linewidth": 4, "zorder": 0},
}
_OTHER: Mapping[str, Any] = {"marker": "."}
_NAMES = {"backscroll": "Backscroll, whole context", "backscroll, its list packed alike": "Backscroll, search alone"}

Runs = Sequence[Mapping[str, Any]]


def slopes(runs: Runs) -> dict[str, float]:
    """The exponent of each system's growth: of the line through the logarithms of two sizes or more."""
    found = {name: exponent_of(points) for name, points in _points(runs).items() if name != EMBEDDING}
    return {name: exponent for name, exponent in found.items() if exponent is not None}


def draw(runs: Runs, path: Path) -> None:
    """Draw the curves into a file; its ending says in which format."""
    import_module("matplotlib").use("Agg")  # no window
    pyplot = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=_INCHES, layout="constrained")
    exponents = slopes(runs)
    embeddings = ", ".join(f"{one['median_ms'][EMBEDDING]:.1f}" for one in runs)
    names = {**_NAMES, EMBEDDING: f"{EMBEDDING}: {embeddings} ms"}
    slowest_first = sorted(_points(runs).items(), key=lambda item: -item[1][-1][1])
    for name, points in slowest_first:
        slope = f", slope {exponents[name]:z.2f}" if name in exponents else ""
        axes.plot(*zip(*points, strict=True), label=names.get(name, name) + slope, **_STYLES.get(name, _OTHER))
    axes.set(
        xscale="log", yscale="log", xlabel="lines of the history", ylabel="median of a question, in embeddings of it"
    )
    number_axes(axes, [one["lines"] for one in runs])
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
    pyplot.close(figure)


def _points(runs: Runs) -> dict[str, list[tuple[int, float]]]:
    """System -> lines and how many embeddings of the question it took."""
    found: dict[str, list[tuple[int, float]]] = {}
    for one in runs:
        for name, milliseconds in one["median_ms"].items():
            found.setdefault(name, []).append((one["lines"], milliseconds / one["median_ms"][EMBEDDING]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw how the time of a question grows.")
    parser.add_argument("figures", type=Path)
    parser.add_argument("image", type=Path, help="where to; the ending says in which format")
    asked = parser.parse_args()
    need_plot()
    draw(json.loads(asked.figures.read_text("utf-8"))["runs"], asked.image)


if __name__ == "__main__":
    main()
