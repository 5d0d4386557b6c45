"""Nothing is traced of a test that is marked so, in a worker of pytest-xdist either: tracing takes most of its time."""

import sys
import threading

import pytest


@pytest.mark.no_cover
def test_what_is_marked_is_not_traced() -> None:
    seen: list[object] = [sys.gettrace(), threading.gettrace()]
    thread = threading.Thread(target=lambda: seen.append(sys.gettrace()))
    thread.start()
    thread.join()

    assert [None, None, None] == seen


def test_everything_else_is_traced_as_before(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.pluginmanager.hasplugin("_cov"):
        pytest.skip("nobody asks for coverage")

    assert sys.gettrace() is not None
