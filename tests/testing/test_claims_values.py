import pickle
from typing import Any

import pytest

from keyshared.testing import Claims, ClaimsError, HistoryError, Promise


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({"per_key": 0}, "per_key is 0; it must be an int of at least 1, or None"),
        ({"per_key": True}, "per_key is True; it must be an int of at least 1, or None"),
        ({"per_consumer": -1}, "per_consumer is -1; it must be an int of at least 0, or None"),
        ({"open_at_once": 1.0}, "open_at_once is 1.0; it must be an int of at least 1, or None"),
        ({"max_tracked": "5"}, "max_tracked is '5'; it must be an int of at least 1, or None"),
        ({"fairness": -1}, "fairness is -1; it must be an int of at least 0, or None"),
        ({"max_attempts": 0}, "max_attempts is 0; it must be an int of at least 1, or None"),
        ({"ack_timeout_ms": 0}, "ack_timeout_ms is 0; it must be an int of at least 1, or None"),
        ({"tolerance_ms": -1}, "tolerance_ms is -1; it must be an int of at least 0"),
        ({"tolerance_ms": 5, "ack_timeout_ms": 5}, "tolerance_ms is 5; it must be less than ack_timeout_ms"),
        ({"tolerance_ms": None}, "tolerance_ms is None; it must be an int of at least 0"),
        ({"total_order": 1}, "total_order is 1; it must be a bool"),
        ({"unit_of": 5}, "unit_of is 5; it must be a function of a key, or None"),
        (
            {"unit_of": len, "total_order": True},
            f"unit_of is {len!r}; it must be None with total_order, where everything is one unit",
        ),
        (
            {"limit_of": len, "total_order": True},
            f"limit_of is {len!r}; it must be None with total_order, where everything is one key",
        ),
        ({"limit_of": 2}, "limit_of is 2; it must be a function of a key, or None"),
        (
            {"latest_only": len, "total_order": True},
            f"latest_only is {len!r}; it must be a bool with total_order: everything is one key",
        ),
        ({"latest_only": 1}, "latest_only is 1; it must be a bool, or a function of a key"),
        ({"may_drop": None}, "may_drop is None; it must be a bool"),
    ],
)
def test_a_guarantee_that_makes_no_sense_is_refused(claims: dict[str, Any], text: str) -> None:
    with pytest.raises(ClaimsError) as raised:
        Claims(**claims)
    assert text == str(raised.value)


@pytest.mark.parametrize("promises", [{"luck"}, {5}, 5, [[]]])
def test_a_promise_that_does_not_exist_is_refused(promises: Any) -> None:
    with pytest.raises(ClaimsError, match="hold ids of one-holder, key-order"):
        Claims(promises=promises)


def test_promises_may_be_named_by_their_ids() -> None:
    assert Claims(promises=frozenset({Promise.FENCE})) == Claims(promises={"fence"})


@pytest.mark.parametrize("error", [ClaimsError("per_key", 0, "be more"), HistoryError(3, "line", None, "x", "be JSON")])
def test_errors_survive_pickling(error: Exception) -> None:
    assert str(error) == str(pickle.loads(pickle.dumps(error)))  # noqa: S301  # our own
