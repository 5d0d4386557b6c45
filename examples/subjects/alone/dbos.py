"""What the kit finds in DBOS, with a client of DBOS and what its workers call."""

from examples.subjects.dbos_partitions import QUEUE, client, database

PAIRS = 50


def the_second_of_two_workflows_starts_first() -> None:
    """Two workflows of a key are enqueued in one transaction: of some pairs the second one starts first."""
    queue = client().register_queue(QUEUE, partition_concurrency=1)
    overtaken = 0
    for pair in range(PAIRS):
        options = {"queue_name": QUEUE, "workflow_name": "charge", "queue_partition_key": f"customer-{pair}"}
        with database().engine.begin() as connection:
            first, second = (client().enqueue_in_transaction(connection, options).get_workflow_id() for _ in range(2))
        started = database().start_queued_partitioned_workflows(queue, "worker", "1", is_latest_version=True)
        assert (first in started) != (second in started)
        overtaken += second in started
    assert 5 < overtaken < 45  # the ids are random, and decide
