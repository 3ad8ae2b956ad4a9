"""`headstay calibrate`: what each threshold of the semantic cache does on labelled pairs of questions."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headstay.cli_format import Format, FormatOption, bad_input, load
from headstay.errors import ConfigError
from headstay.semantic.calibrate import (
    Calibration,
    Level,
    PairEmbedder,
    calibrate,
    judge,
    shown_levels,
)
from headstay.semantic.calibrate_pairs import Pair, read_pairs
from headstay.semantic.decide import THRESHOLD

_PLOTS = (".png", ".svg")


def calibrate_command(
    pairs: Annotated[
        Path,
        typer.Argument(help='JSON lines of {"a": ..., "b": ..., "same_answer": true or false}', show_default=False),
    ],
    *,
    target: Annotated[float, typer.Option(help="most wrong answers among the served ones, as a share")] = 0.01,
    confidence: Annotated[float, typer.Option(help="that the target is kept")] = 0.95,
    embedder: Annotated[
        str | None, typer.Option(help="a sentence-transformers model; default the bundled one", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="draw precision against hits, to a .png or .svg file", show_default=False)
    ] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show what each threshold of the semantic cache serves on labelled pairs, and which one meets a target.

    Exits with 1 if none does. Nothing is changed: set the threshold yourself.
    """
    with bad_input():
        if plot is not None and plot.suffix.lower() not in _PLOTS:
            raise ConfigError(f"--plot {plot}: name a file that ends in {' or '.join(_PLOTS)}")
    drawing: Any = load("headstay.semantic.calibrate_plot", "plots") if plot is not None else None
    embedders = load("headstay.semantic.embedder", "semantic")
    with bad_input():
        read = _read(pairs)
        given = embedders.as_embedder(embedder)
        report = calibrate(list(judge(read, PairEmbedder(given))), target=target, confidence=confidence)
        if plot is not None:
            _draw(drawing, report, plot)
    if form is Format.JSON:
        typer.echo(json.dumps(_as_json(report, given.fingerprint)))
    else:
        typer.echo(_as_text(report, given.fingerprint))
    if report.met is None:
        raise typer.Exit(1)


def _read(file: Path) -> list[Pair]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ConfigError(f"{file} is no UTF-8 text: byte {problem.start} cannot be read.") from problem
    except OSError as problem:
        raise ConfigError(f"{file}: {problem.strerror}.") from problem
    return read_pairs(text.split("\n"), source=str(file))


def _draw(drawing: Any, report: Calibration, file: Path) -> None:
    try:
        drawing.draw(report, file)
    except OSError as problem:
        raise ConfigError(f"--plot {file}: {problem.strerror}.") from problem


def _as_json(report: Calibration, fingerprint: str) -> dict[str, Any]:
    told = asdict(report)
    told["vetoes"] = {kind: {"pairs": count, "same_answer": right} for kind, (count, right) in report.vetoes.items()}
    return {"embedder": fingerprint, "threshold": report.met.threshold if report.met else None, **told}


def _as_text(report: Calibration, fingerprint: str) -> str:
    limits = ", ".join(f"{reason} {count}" for reason, count in report.limits.items())
    vetoes = ", ".join(f"{kind} {count}" for kind, (count, _) in report.vetoes.items())
    stopped = sum(count for count, _ in report.vetoes.values())
    right = sum(right for _, right in report.vetoes.values())
    lines = [
        f"pairs       {report.pairs:,}, of which {report.same:,} share an answer",
        f"embedder    {fingerprint}",
        f"by text     {sum(report.limits.values()):,} pairs are never compared by meaning"
        + (f": {limits}" if limits else ""),
        f"vetoes      {stopped:,} near pairs stopped, of which {right:,} share an answer"
        + (f": {vetoes}" if vetoes else ""),
        "",
        f"{'threshold':>9}{'served':>9}{'hit rate':>10}{'of same':>9}{'precision':>11}{'wrong':>7}"
        f"{'wrong share':>13}{f'at most ({report.confidence:.0%})':>16}",
        *(_line(level) for level in shown_levels(report)),
        "",
    ]
    if report.met is not None:
        lines += [
            f"threshold {report.met.threshold:.2f} meets the target of {report.target:.2%} wrong among served: "
            f"{report.met.wrong_at_most:.2%} at most, at {report.confidence:.0%} confidence, for pairs like these",
            "A cache that fills holds more near questions than pairs show: aim at half of what you promise.",
        ]
        lines += [f"caution: {report.caution}"] if report.caution else []
    else:
        lines.append(f"cannot meet the target of {report.target:.2%} wrong among served: {report.reason}")
    return "\n".join(lines)


def _line(level: Level) -> str:
    mark = "  default" if level.threshold == THRESHOLD else ""
    return (
        f"{level.threshold:>9.2f}{level.served:>9,}{level.hit_rate:>10.2%}{_share(level.kept):>9}"
        f"{_share(level.precision):>11}{level.wrong:>7,}{_share(level.wrong_share):>13}{level.wrong_at_most:>16.2%}{mark}"
    )


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
