"""A Kafka for the tests: librdkafka's mock cluster, or a real one that KEYSHARED_KAFKA names."""

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made
