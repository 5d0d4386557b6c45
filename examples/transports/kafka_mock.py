"""A Kafka to try programs on, without a server: ``kafka_mock.py TOPIC MESSAGES`` prints its address, and serves."""

import sys
import threading

from confluent_kafka import Producer

KEYS = 200


def serve(topic: str, messages: int) -> None:
    """Make a cluster, which lives in a client of librdkafka as long as this process, and fill a topic."""
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    producer = Producer({"bootstrap.servers": ",".join(f"{broker.host}:{broker.port}" for broker in brokers)})
    for number in range(messages):
        value = "a word" if number % 400 == 1 else str(number)
        producer.produce(topic, value, key=f"customer-{number * 7919 % KEYS}")
        producer.poll(0)
    producer.flush()
    print(*(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
