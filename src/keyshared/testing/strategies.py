"""Schedules as a strategy of Hypothesis, for tests of your own."""

from keyshared._checks import check_extra

check_extra("testing", "hypothesis")

from hypothesis import strategies as st

from keyshared.testing._arguments import check_class, check_count
from keyshared.testing.draw import FILTERS, World, draw_schedule
from keyshared.testing.driver import ABILITIES, AnyDriver, AsyncDriver, Driver, abilities
from keyshared.testing.steps import Schedule

__all__ = ["schedules"]


def schedules(driver: type[AnyDriver] | None = None, *, most: int = 50) -> st.SearchStrategy[Schedule]:
    """Whole schedules, as a search draws them: for `keyshared.testing.find.run_schedule`.

    Args:
        driver: Only steps that it can take; None: all kinds.
        most: How many steps at most. The first is a join.
    """
    check_count("most", most, 1)
    if driver is not None:
        check_class("driver", driver, Driver, AsyncDriver)
    can = frozenset(ABILITIES) if driver is None else abilities(driver)
    wanted = FILTERS if driver is None or driver.takes_filters else ((),)
    world = World(can=can, filters=wanted, most_steps=most)
    return st.randoms(use_true_random=False).map(lambda random: draw_schedule(random, world))
