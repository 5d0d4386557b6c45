"""What the kit finds where each thread commits its own message, with confluent-kafka alone."""

from confluent_kafka import Consumer, Producer, TopicPartition

PATIENCE_S = 60


def a_commit_passes_a_message_that_is_not_done() -> None:
    """The thread of the newer message is done first, and commits; the process dies, and the older message is lost."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(producer.list_topics("orders", timeout=PATIENCE_S).brokers.values()))
    for key in ("customer-7", "customer-8", "customer-9"):
        producer.produce("orders", key=key, value=key, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    config = {
        "bootstrap.servers": f"{broker.host}:{broker.port}",
        "group.id": "workers",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition("orders", 0)])
    older, newer = consumer.poll(PATIENCE_S), consumer.poll(PATIENCE_S)
    assert (older.key(), newer.key()) == (b"customer-7", b"customer-8")
    consumer.commit(newer, asynchronous=False)  # by its thread; the one of customer-7 is at work
    consumer.close()  # the process dies
    again = Consumer(config)
    again.assign([TopicPartition("orders", 0)])
    assert again.poll(PATIENCE_S).key() == b"customer-9"
    again.close()
