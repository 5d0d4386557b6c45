"""What the kit finds in a pool of lanes, without the kit."""

from examples.subjects.lanes import LanePool

KEYS = [f"key-{number}".encode() for number in range(100)]


def a_join_gives_keys_to_a_second_worker() -> None:
    """A worker joins, and gets the next message of keys whose last one another worker is still busy with."""
    pool = LanePool()
    pool.join("c1")
    pool.join("c2")
    before = {key: pool.worker_of(key) for key in KEYS}
    for offset, key in enumerate(KEYS):
        pool.submit(offset, key)  # all are in the hands of c1 and c2 now
    pool.join("c3")
    moved = [key for key in KEYS if pool.worker_of(key) != before[key]]
    assert len(moved) > 50  # a third of the keys has to move to c3; that is most of them
    assert any(pool.worker_of(key) != "c3" for key in moved)  # and some move between the old ones
