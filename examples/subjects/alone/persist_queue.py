"""What the kit finds in persist-queue, with the library alone."""

from tempfile import TemporaryDirectory

from persistqueue import SQLiteAckQueue


def a_nack_brings_an_acked_item_back() -> None:
    """``nack`` names an item and no delivery: it brings back what was acked, which is then handed out again."""
    with TemporaryDirectory() as folder:
        queue = SQLiteAckQueue(folder)
        item = queue.put("order 7")
        assert queue.get(block=False) == "order 7"
        queue.ack(id=item)
        assert queue.acked_count() == 1
        assert queue.nack(id=item) == item
        assert queue.get(block=False) == "order 7"
        queue.close()


def a_second_queue_on_the_file_hands_out_what_the_first_has() -> None:
    """Another process opens the file: what the first one has in hand is taken for left over, and handed out again."""
    with TemporaryDirectory() as folder:
        first = SQLiteAckQueue(folder)
        first.put("order 7")
        assert first.get(block=False) == "order 7"
        second = SQLiteAckQueue(folder)
        assert second.get(block=False) == "order 7"
        first.close()
        second.close()
