"""The page shows what the kit finds in its two samples."""

import pytest
from tools.draw_kit_samples import PAGE, cut, is_current

PROVE = PAGE.read_text("utf-8")


def test_the_page_is_current() -> None:
    assert is_current(PROVE)


def test_a_page_with_a_sample_of_something_else_is_not_current() -> None:
    assert not is_current(PROVE.replace("\none-holder: ", "\nno-loss: "))


def test_a_page_without_a_place_for_a_sample_is_no_such_page() -> None:
    with pytest.raises(SystemExit, match="has no place for the sample"):
        cut("# Prove your broker", "sample")
