"""A Kafka for the tests: librdkafka's mock cluster, or one that KEYSHARED_KAFKA names; for some tests tansu too."""

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster, Tansu, find_tansu


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.fixture(scope="session")
def tansu() -> Iterator[Cluster]:
    program = find_tansu()
    if program is None:
        pytest.skip("there is no tansu; type: make servers")
    with Tansu(program) as made:
        yield made


@pytest.fixture(params=["cluster", "tansu"], ids=["mock", "tansu"])
def broker(request: pytest.FixtureRequest) -> Cluster:
    made: Cluster = request.getfixturevalue(request.param)
    return made
