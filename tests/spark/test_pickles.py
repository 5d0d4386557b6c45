"""The same with cloudpickle, by which Spark sends functions and what they hold."""

import pytest
from pyspark import cloudpickle
from tests.public_calls import BUILD
from tests.test_pickles import TRAVELLING, check_travels


@pytest.mark.parametrize("name", TRAVELLING)
def test_every_primitive_travels_in_a_function(name: str) -> None:
    check_travels(BUILD[name](), cloudpickle.dumps)
