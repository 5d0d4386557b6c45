"""What hangs in the gallery: a page of ``docs/gallery`` for each system, the files that drive it, and what they need.

Nothing is imported here, so that the pages can be read without any of the systems.
"""

from typing import Final, NamedTuple


class Exhibit(NamedTuple):
    """A system.

    Attributes:
        page: Name of its page in ``docs/gallery``; a file of that name, with underscores, in ``alone`` shows what is
            found without the kit.
        title: What the system is called.
        modules: The files with its drivers and machines.
        packages: What of ``requirements/`` is used.
        servers: Which of `tools.find_servers.SERVERS` are started.
        python: The oldest Python that runs it.
    """

    page: str
    title: str
    modules: tuple[str, ...]
    packages: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)


EXHIBITS: Final = (
    Exhibit("lanes", "A pool of lanes", ("lanes",)),
    Exhibit(
        "redis-streams", "Redis Streams", ("redis_streams", "redis_lanes", "redis_front"), ("redis",), ("redis-server",)
    ),
    Exhibit(
        "postgres-skip-locked",
        "PostgreSQL, SKIP LOCKED",
        ("postgres_rows", "postgres_keys"),
        ("psycopg",),
        ("postgres",),
    ),
    Exhibit("rabbitmq", "RabbitMQ, single active consumer", ("rabbit_lanes",), ("aio-pika",), ("rabbitmq-server",)),
    Exhibit("nats-jetstream", "NATS JetStream", ("nats_partitions",), ("nats-py",), ("nats-server",)),
    Exhibit("moto-sqs-fifo", "moto, SQS FIFO", ("moto_sqs",), ("moto", "boto3")),
    Exhibit("pgmq", "pgmq", ("pgmq_groups",), ("pgmq", "psycopg"), ("postgres",)),
    Exhibit("procrastinate", "Procrastinate", ("procrastinate_locks",), ("procrastinate", "psycopg"), ("postgres",)),
    Exhibit("persist-queue", "persist-queue", ("persist_queue",), ("persist-queue",)),
    Exhibit(
        "celery", "Celery, a queue for each key", ("celery_queues",), ("celery", "kombu", "redis"), ("redis-server",)
    ),
    Exhibit("huey", "huey, a lock for each key", ("huey_locks",), ("huey", "redis"), ("redis-server",)),
    Exhibit("confluent-kafka", "confluent-kafka, a thread for each key", ("kafka_threads",), ("confluent-kafka",)),
    Exhibit(
        "pyrallel-consumer",
        "pyrallel-consumer",
        ("pyrallel_group",),
        ("pyrallel-consumer", "confluent-kafka"),
        ("tansu",),
        python=(3, 12),
    ),
    Exhibit(
        "pgqueuer", "pgqueuer, an entrypoint for each key", ("pgqueuer_limits",), ("pgqueuer", "psycopg"), ("postgres",)
    ),
    Exhibit("dbos", "DBOS, a partition for each key", ("dbos_partitions",), ("dbos", "psycopg"), ("postgres",)),
    Exhibit(
        "dramatiq", "dramatiq, a mutex for each key", ("dramatiq_mutex",), ("dramatiq", "redis"), ("redis-server",)
    ),
    Exhibit("leasedkeyq", "leasedkeyq", ("leased_key_queue",), ("leasedkeyq",)),
    Exhibit("lock-recipes", "A pool of threads, a lock for each key", ("lock_recipes",)),
)
