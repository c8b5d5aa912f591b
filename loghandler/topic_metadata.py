"""What a TopicProducer knows of its topic, and whether records of a partition that is gone may be divided again: a
state machine without socket or clock.

A topic that is deleted and created with fewer partitions leaves divided records without their partition. Records that
were not sent to it can go anywhere. Records that were sent without an answer may be stored, and then another partition
would have them a second time. They are not, if the topic has another id (KIP-516) than when they were divided: the
partitions of one topic never become fewer, so the partition that may have them was of a deleted topic, and with it they
are gone. With the same id, the broker that was asked is behind the others: the records wait. Brokers without topic ids
(Kafka before 2.8) cannot tell these two apart, so there, too, records that may be stored wait, up to
delivery.timeout.ms. The sequence numbers of other partitions stay: what may be stored in one that is there under the
same number is sent to it again, and the broker drops the duplicate.

What is left: a topic is created again, gets more partitions, one of the new ones stores the records without an answer,
and then the broker that is asked knows the new id but not yet the new partition. Then they are stored twice.

Owner: a TopicProducer.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from odradek.pipeline.wire.settings import Address

NO_ID = UUID(int=0)  # of brokers that have none


class TopicMetadata:
    """Leaders by partition, the topic's id, and what is unsure of the records that were divided last."""

    def __init__(self) -> None:
        self.leaders: Mapping[int, Address | None] = {}  # of all partitions; empty: not known
        self._id = NO_ID
        self._divided_id = NO_ID
        self._sent = False  # the last attempt may have stored the first records
        self._unsure = False  # an earlier attempt may have

    def learn(self, topic_id: UUID, leaders: Mapping[int, Address | None]) -> None:
        """A broker has answered."""
        self._id, self.leaders = topic_id, leaders

    def forget_leaders(self) -> None:
        """They may have changed."""
        self.leaders = {}

    def divided(self) -> None:
        """Records were divided by these partitions; what is left of the former division is among them."""
        self._divided_id = self._id
        self.settled()

    def attempt(self) -> None:
        """The first records are sent; they may be stored from now on."""
        self._unsure = self._unsure or self._sent
        self._sent = True

    def not_stored(self) -> None:
        """The answer to this attempt says that it stored nothing."""
        self._sent = False

    def settled(self) -> None:
        """The first records are stored or given up; those that follow were not sent yet."""
        self._sent = self._unsure = False

    def may_divide_again(self) -> bool:
        """Whether records of a partition that is not in the metadata can go to others without being stored twice."""
        recreated = NO_ID not in (self._id, self._divided_id) and self._id != self._divided_id
        return recreated or not (self._sent or self._unsure)
