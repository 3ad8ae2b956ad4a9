"""The nearest kept question over the threshold that no veto speaks against."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.errors import ConfigError
from headstay.semantic.decide import THRESHOLD, Candidate, check_threshold, decide, tighter
from headstay.semantic.reasons import TEXT, Reason


def found(*pairs: tuple[str, float]) -> list[Candidate[int]]:
    return [Candidate(entry, text, score) for entry, (text, score) in enumerate(pairs)]


def test_nothing_stored() -> None:
    decision = decide("Why?", found())
    assert (decision.hit, decision.score, decision.reason, decision.refused) == (None, None, Reason.NOTHING_STORED, ())


def test_the_nearest_over_the_threshold_is_served() -> None:
    decision = decide("Where is my card?", found(("Where can my card be?", 0.95), ("Where is the card of mine?", 0.93)))
    assert (decision.hit, decision.score, decision.reason) == (0, 0.95, None)


def test_below_the_threshold_nothing_is_served_and_the_nearest_is_told() -> None:
    decision = decide("Where is my card?", found(("Where can my card be?", 0.9199)))
    assert (decision.hit, decision.score, decision.reason) == (None, 0.9199, Reason.BELOW_THRESHOLD)


def test_the_threshold_itself_is_enough() -> None:
    assert decide("a", found(("b", 0.92)), threshold=0.92).hit == 0


def test_a_vetoed_candidate_is_passed_over_and_told() -> None:
    decision = decide(
        "Where is order 1234?", found(("Where is order 1235?", 0.99), ("Where would order 1234 be?", 0.94))
    )
    assert (decision.hit, decision.score) == (1, 0.94)
    assert [(r.candidate.entry, r.veto.kind, r.veto.asked, r.veto.stored) for r in decision.refused] == [
        (0, Reason.VETO_NUMBER, "1234", "1235")
    ]


def test_when_all_are_vetoed_the_reason_is_that_of_the_nearest() -> None:
    decision = decide("enable it for 2 days", found(("disable it for 2 days", 0.97), ("enable it for 3 days", 0.96)))
    assert (decision.hit, decision.score, decision.reason) == (None, 0.97, Reason.VETO_POLARITY)
    assert [refusal.veto.kind for refusal in decision.refused] == [Reason.VETO_POLARITY, Reason.VETO_NUMBER]


def test_complaint_24_a_score_that_is_no_number_never_wins() -> None:
    decision = decide("a", found(("a b", math.nan)))
    assert (decision.hit, decision.score, decision.reason) == (None, None, Reason.BELOW_THRESHOLD)
    assert decide("a", found(("a b", math.nan), ("a c", 0.95))).hit == 1


@pytest.mark.parametrize("threshold", [0.01, 0.92, 1, 1.0])
def test_complaint_25_a_threshold_is_a_similarity(threshold: float) -> None:
    assert check_threshold(threshold) == threshold


@pytest.mark.parametrize("threshold", [0, -0.1, 1.01, 92, math.nan, math.inf, "0.9", None, True])
def test_complaint_25_another_threshold_is_one_clear_error(threshold: object) -> None:
    with pytest.raises(ConfigError, match=r"SemanticCache\(threshold\)=.*similarity over 0 and up to 1"):
        check_threshold(threshold, where="SemanticCache(threshold)")


def test_complaint_25_a_wrong_threshold_never_decides() -> None:
    with pytest.raises(ConfigError):
        decide("a", found(("b", 0.5)), threshold=0)


@given(st.floats(0.01, 1), st.floats(0.01, 1))
def test_complaint_08_a_call_may_only_tighten_the_threshold(configured: float, asked: float) -> None:
    assert tighter(configured, asked) >= configured
    assert tighter(configured, None) == configured


@given(st.lists(st.floats(-1, 1, allow_nan=False), max_size=8), st.floats(0.01, 1))
def test_what_is_served_is_over_the_threshold_and_nothing_better_was_left(
    scores: list[float], threshold: float
) -> None:
    scores.sort(reverse=True)
    decision = decide("Where is it?", found(*(("Where could it be?", score) for score in scores)), threshold=threshold)
    assert (decision.hit is not None) == (max(scores, default=-1.0) >= threshold)
    assert decision.hit in (0, None)
    assert (decision.reason is None) == (decision.hit is not None)


def test_the_default_is_the_threshold_of_the_documents() -> None:
    assert THRESHOLD == 0.92


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_one_line_for_the_user(reason: Reason) -> None:
    assert reason.text == TEXT[reason]
    assert 10 < len(reason.text) < 110
    assert "\n" not in reason.text
    assert str(reason) == reason.name.lower()


def test_no_two_reasons_say_the_same() -> None:
    assert len(set(TEXT.values())) == len(Reason)
