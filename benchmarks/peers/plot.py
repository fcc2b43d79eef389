"""Evidence recall against the tokens sent, one curve for each system.

    python benchmarks/peers/plot.py OUT.json docs/evidence.png

A color is a peer, and curves that are the same are one; candidates by meaning alone are dashed.
Needs matplotlib: pip install 'backscroll[plot]'.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from table import BASELINE, Figures, read_figures

try:
    import matplotlib as mpl
    from matplotlib import pyplot as plt
except ModuleNotFoundError:
    sys.exit("Error: a plot needs matplotlib: pip install 'backscroll[plot]'")

_INCHES = (9.5, 5.5)
_DOTS_PER_INCH = 150
# told apart by people who see colors differently (Okabe and Ito)
_COLORS = {"LangChain": "#0072B2", "LlamaIndex": "#009E73", "mem0": "#E69F00", "MemPalace": "#CC79A7"}
_OWN, _PRESET, _SHARED = "#000000", "#888888", "#56B4E9"
_PRESET_MARKERS = {"membot": "s", "pruning": "^"}
_LEFT_OUT = "its list packed alike"  # the control lies on Backscroll's own curve


def plot(found: Figures, path: Path) -> None:
    """Draw the curves into a file."""
    mpl.use("Agg")  # no window
    figure, axes = plt.subplots(figsize=_INCHES, layout="constrained")
    for systems, points in _curves(found).items():
        _draw(axes, systems, points)
    budgets = list(dict.fromkeys(budget for _, budget in found))
    axes.set_xscale("log")
    ticks = sorted({100, 200, *budgets})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, 1)
    axes.set_xlabel("tokens sent, mean")
    axes.set_ylabel("evidence recall, 95 % bootstrap interval")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
    plt.close(figure)


def _curves(found: Figures) -> dict[tuple[str, ...], Sequence[Mapping[str, Any]]]:
    """The points of each curve; systems that found the same, as plain vector searches do, share one."""
    names: dict[tuple[float, ...], list[str]] = {}
    points: dict[str, list[Mapping[str, Any]]] = {}
    for (system, _), one in found.items():
        if _LEFT_OUT not in system:
            points.setdefault(system, []).append(one)
    for system, of in points.items():
        names.setdefault(tuple(one["evidence_recall"]["mean"] for one in of), []).append(system)
    return {tuple(alike): points[alike[0]] for alike in names.values()}


def _draw(axes: Any, systems: Sequence[str], points: Sequence[Mapping[str, Any]]) -> None:
    recalls = [one["evidence_recall"] for one in points]
    means = [recall["mean"] for recall in recalls]
    bounds = (
        [recall["mean"] - recall["low"] for recall in recalls],
        [recall["high"] - recall["mean"] for recall in recalls],
    )
    axes.errorbar([one["tokens"] for one in points], means, yerr=bounds, label="\n".join(systems), **_style(systems))


def _style(systems: Sequence[str]) -> dict[str, Any]:
    system = systems[0]
    if system == BASELINE:
        return {"color": _OWN, "marker": "o", "linewidth": 2.6, "capsize": 3, "zorder": 5}
    own_color = _COLORS.get(system.partition(" ")[0], _PRESET)
    color = _SHARED if len(systems) > 1 else own_color
    line = "--" if "vector" in system else "-" if "hybrid" in system else ":"
    marker = "." if color != _PRESET else _PRESET_MARKERS.get(system, "x")
    return {"color": color, "linestyle": line, "marker": marker, "linewidth": 1.4, "elinewidth": 0.7, "capsize": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw evidence recall against tokens.")
    parser.add_argument("figures", type=Path)
    parser.add_argument("image", type=Path, help="where to; the ending says in which format")
    asked = parser.parse_args()
    plot(read_figures(asked.figures)[1], asked.image)


if __name__ == "__main__":
    main()
