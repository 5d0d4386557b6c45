"""Service times and answers as data."""

import pickle
from collections import Counter
from fractions import Fraction
from itertools import count

import pytest
from xxhash import xxh64

from keyshared.errors import ArgumentError, ConfigError, KeyTypeError
from keyshared.simulate import Answer, FailFirst, Fixed, PerMessage, Poisoned, Sampled, SampledAnswers, Scaled


def test_a_message_without_a_service_time_of_its_own_takes_the_default() -> None:
    assert 7 == PerMessage(default_ms=7).duration_ms(0, 1, None)


def test_a_message_without_a_service_time_is_refused_if_there_is_no_default() -> None:
    with pytest.raises(ArgumentError, match="offset 3"):
        PerMessage().duration_ms(3, 1, None)


def test_a_draw_follows_the_written_formula() -> None:
    for purpose, drawn in (
        ("service", Sampled(range(5), seed=99).duration_ms(12, 3, None)),
        ("answer", list(Answer).index(SampledAnswers(list(Answer), seed=99).answer(12, None, 3))),
    ):
        assert xxh64(f"{purpose}:12:3".encode(), seed=99).intdigest() % 5 == drawn


def test_samples_are_drawn_as_often_as_they_occur() -> None:
    times = Sampled([1, 1, 1, 9])
    counts = Counter(times.duration_ms(offset, 1, None) for offset in range(10_000))
    assert 7_300 < counts[1] < 7_700
    assert 10_000 == counts[1] + counts[9]


@pytest.mark.parametrize(("factor", "expected"), [(3, 30), (0, 0), (0.5, 5), (Fraction(1, 3), 4), (1.01, 11)])
def test_a_scaled_time_is_exact_and_rounded_up(factor: float | Fraction, expected: int) -> None:
    assert expected == Scaled(Fixed(10), factor).duration_ms(0, 1, None)


def test_scaling_passes_on_what_the_message_brings() -> None:
    assert 40 == Scaled(PerMessage(), 2).duration_ms(0, 1, 20)


def test_poison_is_known_by_key_or_by_offset() -> None:
    model = Poisoned(["a", b"b"], [7], Answer.REJECT)
    cases = [(0, b"a"), (0, b"b"), (7, None), (0, b"c"), (0, None)]
    expected = [Answer.REJECT, Answer.REJECT, Answer.REJECT, Answer.ACK, Answer.ACK]
    assert expected == [model.answer(offset, key, 1) for offset, key in cases]


def test_the_first_attempts_fail_and_later_ones_do_not() -> None:
    assert [Answer.SILENT] * 2 + [Answer.ACK] == [FailFirst(2, Answer.SILENT).answer(0, None, n) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "model",
    [
        Fixed(3),
        PerMessage(),
        Sampled([1, 2], seed=4),
        Scaled(Fixed(3), 1.5),
        Poisoned(["k"], [1]),
        FailFirst(1),
        SampledAnswers([Answer.ACK, Answer.NACK]),
    ],
    ids=count(),
)
def test_models_are_values_that_travel(model: object) -> None:
    travelled = pickle.loads(pickle.dumps(model))  # noqa: S301 - what was pickled just now
    assert model == travelled
    assert hash(model) == hash(travelled)


@pytest.mark.parametrize(
    ("build", "parameter"),
    [
        (lambda: Fixed(-1), "ms"),
        (lambda: Fixed(True), "ms"),
        (lambda: PerMessage(default_ms=-1), "default_ms"),
        (lambda: Sampled([]), "samples"),
        (lambda: Sampled("12"), "samples"),  # type: ignore[arg-type]
        (lambda: Sampled({1, 2}), "samples"),  # type: ignore[arg-type]
        (lambda: Sampled([1, -1]), "samples"),
        (lambda: Sampled([1], seed=-1), "seed"),
        (lambda: Sampled([1], seed=1 << 64), "seed"),
        (lambda: Scaled(3, 2), "model"),  # type: ignore[arg-type]
        (lambda: Scaled(Fixed, 2), "model"),  # type: ignore[arg-type]
        (lambda: Scaled(Fixed(1), "2"), "factor"),  # type: ignore[arg-type]
        (lambda: Scaled(Fixed(1), True), "factor"),
        (lambda: Scaled(Fixed(1), -1), "factor"),
        (lambda: Scaled(Fixed(1), float("nan")), "factor"),
        (lambda: Scaled(Fixed(1), float("inf")), "factor"),
        (lambda: Poisoned("abc"), "keys"),
        (lambda: Poisoned([None]), "key"),  # type: ignore[list-item]
        (lambda: Poisoned(offsets=["1"]), "offsets"),  # type: ignore[list-item]
        (lambda: Poisoned(reply=Answer.ACK), "reply"),
        (lambda: Poisoned(reply="nack"), "reply"),  # type: ignore[arg-type]
        (lambda: FailFirst(-1), "attempts"),
        (lambda: FailFirst(1, Answer.ACK), "reply"),
        (lambda: SampledAnswers([]), "samples"),
        (lambda: SampledAnswers(["ack"]), "samples"),  # type: ignore[list-item]
        (lambda: SampledAnswers([Answer.ACK], seed=1.5), "seed"),  # type: ignore[arg-type]
    ],
    ids=count(),
)
def test_values_that_can_never_work_are_refused(build: object, parameter: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()  # type: ignore[operator]
    assert parameter == caught.value.parameter


def test_a_poisoned_key_must_be_a_key() -> None:
    with pytest.raises(KeyTypeError):
        Poisoned([1])  # type: ignore[list-item]
