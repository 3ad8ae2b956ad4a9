"""`headstay calibrate`: bounds, the choice of a threshold, what pairs are, and the command's ends."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from headstay.cli import app
from headstay.errors import ConfigError
from headstay.semantic.calibrate import (
    THRESHOLDS,
    Calibration,
    Judged,
    Level,
    PairEmbedder,
    calibrate,
    judge,
    shown_levels,
)
from headstay.semantic.calibrate_bound import pairs_needed, upper_bound
from headstay.semantic.calibrate_pairs import Pair, read_pairs
from headstay.semantic.embedder import MiniLM
from headstay.semantic.reasons import Reason


def right(count: int, score: float) -> list[Judged]:
    return [Judged(same_answer=True, score=score)] * count


def wrong(count: int, score: float) -> list[Judged]:
    return [Judged(same_answer=False, score=score)] * count


def level(report: Calibration, threshold: float) -> Level:
    return next(one for one in report.levels if one.threshold == threshold)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["calibrate", *arguments])


def written(folder: Path, pairs: list[dict[str, object]]) -> str:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    return str(file)


def repeats(count: int) -> list[dict[str, object]]:
    """Pairs of identical texts: the exact tier serves them at any threshold."""
    return [{"a": f"question {n}", "b": f"question {n} ", "same_answer": True} for n in range(count)]


OTHER = {"a": "How do I order a card?", "b": "What is the weather in Rome?", "same_answer": False}


@pytest.mark.parametrize(
    ("bad", "served", "bound"),
    [
        (0, 299, 0.00997),  # the root of (1 - p) ** 299 = 0.05
        (0, 1, 0.95),
        (1, 10, 0.3942),  # tables of Clopper and Pearson, one-sided 95%
        (5, 100, 0.1023),
        (4, 4, 1.0),
        (0, 0, 1.0),
    ],
)
def test_the_bound_is_that_of_the_tables(bad, served, bound):
    assert upper_bound(bad, served) == pytest.approx(bound, abs=5e-5)


@settings(deadline=None)
@given(st.integers(1, 400), st.data(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_at_the_bound_so_few_wrong_ones_have_the_probability_that_is_left(served, data, confidence):
    bad = data.draw(st.integers(0, served - 1))
    bound = upper_bound(bad, served, confidence)
    tail = math.fsum(math.comb(served, n) * bound**n * (1 - bound) ** (served - n) for n in range(bad + 1))
    assert tail == pytest.approx(1 - confidence, rel=1e-6)


def test_a_bound_of_a_hundred_thousand_pairs_is_near_the_normal_one():
    # 1% + 1.645 * sqrt(0.01 * 0.99 / 100,000) = 1.0518%
    assert upper_bound(1_000, 100_000) == pytest.approx(0.010518, abs=2e-5)


@pytest.mark.parametrize(("target", "needed"), [(0.01, 299), (0.05, 59), (0.5, 5), (0.9, 2)])
def test_so_many_right_pairs_show_a_target(target, needed):
    assert pairs_needed(target) == needed
    assert upper_bound(0, needed) <= target < upper_bound(0, needed - 1)


def test_the_threshold_that_serves_most_within_the_target_is_chosen():
    # 0.88 and over: none of 500 wrong. At 0.87 ten of 510 are: 3.3% at most.
    report = calibrate([*right(400, 0.95), *right(100, 0.885), *wrong(10, 0.875), *right(90, 0.7)], target=0.01)
    assert report.met == level(report, 0.88)
    assert report.met.served == 500
    assert report.met.wrong == 0
    assert report.met.hit_rate == 500 / 600
    assert report.met.kept == 500 / 590
    assert report.reason is None
    assert level(report, 0.87).wrong_share == 10 / 510
    assert level(report, 0.87).precision == 500 / 510


def test_the_first_threshold_that_fails_ends_the_search():
    # at 0.80 3,000 right ones would water the 20 wrong ones down, but 0.90 has failed before
    judged = [*right(300, 0.955), *wrong(20, 0.905), *right(3_000, 0.805)]
    report = calibrate(judged, target=0.02)
    assert level(report, 0.80).wrong_at_most < 0.02
    assert report.met == level(report, 0.91)


def test_a_threshold_that_serves_too_few_to_show_anything_ends_nothing():
    report = calibrate([*right(3, 0.985), *right(296, 0.905), *wrong(1, 0.3)], target=0.01)
    assert report.met == level(report, 0.50)
    assert report.met.served == 299


def test_pairs_that_break_no_threshold_are_said_to_show_too_little():
    far = calibrate([*right(400, 0.95), *wrong(50, 0.2)], target=0.01)
    assert far.met == level(far, 0.50)
    assert far.caution is not None
    assert "near misses" in far.caution
    near = calibrate([*right(400, 0.95), *wrong(50, 0.7)], target=0.01)
    assert near.met == level(near, 0.71)
    assert near.caution is None


def test_it_says_why_no_threshold_will_do():
    few = calibrate([*right(298, 0.95), *wrong(1, 0.2)], target=0.01)
    assert few.met is None
    assert few.reason == "at least 299 served pairs are needed to show it, and no threshold serves more than 298"
    bad = calibrate([*right(300, 0.985), *wrong(30, 0.985)], target=0.01)
    assert bad.met is None
    assert bad.reason is not None
    assert bad.reason.startswith("at 0.98, 30 of 330 served pairs are wrong")
    blind = calibrate(right(5_000, 0.95), target=0.01)
    assert blind.met is None
    assert blind.reason == "all pairs share an answer, so nothing shows which ones would be served wrongly"


def test_what_a_veto_or_a_limit_stops_is_not_served():
    judged = [
        Judged(same_answer=True, score=0.97, veto=Reason.VETO_NUMBER),
        Judged(same_answer=False, score=0.97, veto=Reason.VETO_NUMBER),
        Judged(same_answer=False, score=0.3, veto=Reason.VETO_ORDER),
        Judged(same_answer=True, score=None, limit=Reason.CODE),
        *right(6, 0.96),
    ]
    report = calibrate(judged, target=0.4)
    assert level(report, 0.95).served == 6
    assert level(report, 0.95).hit_rate == 0.6
    assert report.limits == {"code": 1}
    assert report.vetoes == {"veto_number": (2, 1)}  # the other one is too far to be a candidate


@pytest.mark.parametrize("setting", [{"target": 0}, {"target": 1}, {"target": 1.5}, {"target": 0.1, "confidence": 1}])
def test_a_target_or_confidence_that_is_no_share_is_refused(setting):
    with pytest.raises(ConfigError, match="give a share over 0 and below 1"):
        calibrate(right(1, 0.9), **setting)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=60))
def test_a_laxer_threshold_serves_no_less(drawn):
    report = calibrate([Judged(same, score / 100) for same, score in drawn], target=0.05)
    for strict, lax in zip(report.levels, report.levels[1:], strict=False):
        assert strict.threshold > lax.threshold
        assert strict.served <= lax.served
        assert strict.wrong <= lax.wrong
    assert report.met is None or report.met.wrong_at_most <= 0.05


def test_the_levels_shown_are_every_fifth_the_default_and_the_chosen():
    report = calibrate([*right(400, 0.95), *right(100, 0.885), *wrong(10, 0.875)], target=0.01)
    shown = [one.threshold for one in shown_levels(report)]
    assert shown == [0.95, 0.92, 0.9, 0.88, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]
    assert set(shown) <= set(THRESHOLDS)


def test_pairs_are_judged_as_the_cache_would():
    pairs = [
        Pair("How do I reset my password?", "How do I reset my password?\n", True),
        Pair("Where is order 1234?", "Where is order 1235?", False),
        Pair("print(x)", "How do I print x?", True),
        Pair("How do I reset my password?", "How can I reset my password?", True),
        Pair("How do I reset my password?", "What is the weather in Rome?", False),
    ]
    exact, order, code, reworded, other = judge(pairs, PairEmbedder(MiniLM()))
    assert exact == Judged(True, 1.0)
    assert order.veto in (Reason.VETO_NUMBER, Reason.VETO_ID)
    assert order.score is not None
    assert order.score > 0.9
    assert code == Judged(True, None, limit=Reason.CODE)
    assert reworded.score is not None
    assert reworded.score > 0.92
    assert reworded.veto is None
    assert other.score is not None
    assert other.score < 0.5


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "pairs.jsonl, line 3 is no JSON"),
        ("[1, 2]", "pairs.jsonl, line 3 is no JSON object with the keys a, b, same_answer"),
        ('{"a": "x", "same_answer": true}', "pairs.jsonl, line 3 has no b."),
        ('{"a": "x", "b": " ", "same_answer": true}', 'pairs.jsonl, line 3: "b" must be a text'),
        ('{"a": 1, "b": "x", "same_answer": true}', 'pairs.jsonl, line 3: "a" must be a text'),
        ('{"a": "x", "b": "y", "same_answer": 1}', 'pairs.jsonl, line 3: "same_answer" must be true or false'),
        ('{"a": "\\ud800", "b": "y", "same_answer": true}', 'pairs.jsonl, line 3: "a" holds half of a surrogate'),
    ],
)
def test_a_bad_line_is_named(line, said):
    good = '{"a": "x", "b": "y", "same_answer": true, "source": "desk"}'
    with pytest.raises(ConfigError) as caught:
        read_pairs([good, "", line, good], source="pairs.jsonl")
    assert str(caught.value).startswith(said)


def test_no_pairs_at_all_are_an_error():
    with pytest.raises(ConfigError, match="holds no pairs"):
        read_pairs(["", " "], source="pairs.jsonl")


def test_the_command_names_the_threshold_that_meets_the_target(tmp_path):
    done = run(written(tmp_path, [*repeats(300), OTHER]))
    assert done.exit_code == 0, done.output
    assert "pairs       301, of which 300 share an answer" in done.stdout
    assert "threshold 0.50 meets the target of 1.00% wrong among served: 0.99% at most" in done.stdout
    assert "caution: no threshold broke the target" in done.stdout  # there is one other pair, and it is far
    assert done.stderr == ""


def test_the_command_says_it_cannot_meet_a_target_and_exits_with_one(tmp_path):
    done = run(written(tmp_path, [*repeats(300), OTHER]), "--target", "0.001", "--format", "json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["threshold"] is None
    assert told["met"] is None
    assert told["reason"].startswith("at least 2,995 served pairs are needed")
    assert [one["threshold"] for one in told["levels"]] == list(THRESHOLDS)
    assert told["levels"][0]["served"] == 300
    assert told["embedder"] == MiniLM().fingerprint


def test_bad_input_of_the_command_is_one_line_and_exit_code_two(tmp_path):
    good = written(tmp_path, [*repeats(2), OTHER])
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"a": "x", "b": "y", "same_answer": true}\nnonsense\n', encoding="utf-8")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    for arguments, said in (
        ((str(bad),), "bad.jsonl, line 2 is no JSON"),
        ((str(tmp_path / "none.jsonl"),), "none.jsonl: No such file or directory"),
        ((str(binary),), "is no UTF-8 text"),
        ((good, "--target", "0"), "target=0.0: give a share"),
        ((good, "--plot", "curve.gif"), "curve.gif: name a file that ends in .png or .svg"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, done
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert done.stdout == ""


def test_a_plot_without_matplotlib_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None; "
        f"sys.argv = ['headstay', 'calibrate', {written(tmp_path, [OTHER])!r}, '--plot', 'curve.svg']\n"
        "from headstay.cli import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 2
    assert 'matplotlib is missing: pip install "headstay[plots]"' in done.stderr
    assert done.stdout == ""
