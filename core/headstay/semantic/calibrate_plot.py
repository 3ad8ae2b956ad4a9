"""Precision against hit rate over all thresholds, drawn by matplotlib; the extra is called `plots`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from headstay.semantic.calibrate import Calibration
from headstay.semantic.decide import THRESHOLD

_NAMED = (0.95, 0.85, 0.75)

_matplotlib: Any = import_module("matplotlib")  # by name: type checkers run without the extra
_figure: Any = import_module("matplotlib.figure")


def draw(report: Calibration, file: Path) -> None:
    """Draw a report.

    Args:
        report: What to draw.
        file: Where to; its ending says which format.

    Raises:
        OSError: The file cannot be written.
    """
    served = [level for level in report.levels if level.served]
    hits = [level.hit_rate for level in served]
    figure = _figure.Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(hits, [level.precision for level in served], color="#1f5fa8", label="precision of served pairs")
    axes.fill_between(
        hits,
        [1 - level.wrong_at_most for level in served],
        [level.precision for level in served],
        color="#1f5fa8",
        alpha=0.15,
        label=f"down to its {report.confidence:.0%} bound",
    )
    axes.axhline(
        1 - report.target, color="#a83232", linewidth=1, linestyle="--", label=f"target {report.target:.1%} wrong"
    )
    marked = {THRESHOLD, *_NAMED, report.met.threshold if report.met else THRESHOLD}
    for level in served:
        if level.threshold in marked:
            axes.plot(level.hit_rate, level.precision, "o", color="#1f5fa8")
            axes.annotate(
                f"{level.threshold:.2f}", (level.hit_rate, level.precision), (4, 5), textcoords="offset points"
            )
    axes.set_xlabel(f"hit rate: served pairs among {report.pairs:,}")
    axes.set_ylabel("precision: right pairs among served")
    axes.set_ylim(top=1.02)
    axes.legend(loc="lower left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with _matplotlib.rc_context({"svg.hashsalt": "headstay"}):  # the same report, the same file
        figure.savefig(file, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
