"""aiokafka: asyncio, wrapped in one event loop for each call."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..records import Record
from .base import WAIT_SECONDS, Make, Read


class AioKafka:
    """See `base.Driver`."""

    name = "aiokafka"
    tool: str | None = None
    flavour = "binary_never_all_null"

    def write(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        numbers: Iterable[int],
        make: Make,
        codec: str,
    ) -> None:
        """Wait for every future; raise the first error."""
        asyncio.run(_write(bootstrap, topic, partition, numbers, make, codec))

    def read(self, bootstrap: str, topic: str, partition: int, count: int) -> Iterator[Read]:
        """In order from offset 0; the loop runs in a thread that fills a bounded queue."""
        found: queue.Queue[Any] = queue.Queue(20)
        arguments = (bootstrap, topic, partition, count, found)
        thread = threading.Thread(target=_read_in_thread, args=arguments, daemon=True)
        thread.start()
        while count:
            got = found.get(timeout=WAIT_SECONDS * 2)
            if isinstance(got, BaseException):
                raise got
            yield from got
            count -= len(got)
        thread.join(WAIT_SECONDS)

    def member(self, bootstrap: str, topic: str, group: str, folder: Path) -> AioMember:
        """A thread with a loop of its own."""
        return AioMember(bootstrap, topic, group)


async def _write(
    bootstrap: str,
    topic: str,
    partition: int,
    numbers: Iterable[int],
    make: Make,
    codec: str,
) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
        max_batch_size=65_536,
        max_request_size=1_000_000,
    )
    await producer.start()
    try:
        futures = []
        for number in numbers:
            record = make(number)
            futures.append(
                await producer.send(
                    topic, record.value, key=record.key, headers=list(record.headers), partition=partition
                )
            )
        await asyncio.wait_for(asyncio.gather(*futures), WAIT_SECONDS * 2)
    finally:
        await producer.stop()


def _read_in_thread(bootstrap: str, topic: str, partition: int, count: int, found: queue.Queue[Any]) -> None:
    try:
        asyncio.run(_read(bootstrap, topic, partition, count, found))
    except BaseException as error:
        found.put(error)


async def _read(bootstrap: str, topic: str, partition: int, count: int, found: queue.Queue[Any]) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, partition)])
        await consumer.seek_to_beginning()
        while count > 0:
            batch = await consumer.getmany(timeout_ms=WAIT_SECONDS * 1000, max_records=min(count, 1000))
            messages = [message for part in batch.values() for message in part]
            assert messages, f"{count} records of {topic}-{partition} did not come"
            found.put([Read(m.offset, Record(m.key, m.value, tuple(m.headers))) for m in messages])
            count -= len(messages)
    finally:
        await consumer.stop()


class AioMember:
    """See `base.Member`."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._values: list[bytes] = []
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._arguments = (bootstrap, topic, group)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._consume())
        except BaseException as error:
            self._error = error

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer

        bootstrap, topic, group = self._arguments
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        try:
            while not self._stop.is_set():
                for found in (await consumer.getmany(timeout_ms=200)).values():
                    self._values.extend(message.value for message in found)
        finally:
            await consumer.stop()

    def leave(self) -> None:
        """Stop, which commits and leaves."""
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer did not stop"
        if self._error:
            raise self._error

    kill = leave

    def seen(self) -> list[bytes]:
        """Values so far."""
        return self._values
