"""The answers of the broker. The names are those of the HTTP API."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Mapping

from .settings import DeliveryWindow, KeyLimit, TopicSettings

# Messages


@dataclass(frozen=True)
class PushResult:
    """Where a message is. `status` is ``stored``, ``journaled``, ``buffered``, ``duplicate``, ``replaced``, ``debounced``, or ``error``."""

    id: str
    status: str
    partition: int | None = None
    due_at: datetime | None = None
    differs: bool = False
    duplicate_of: str | None = None
    replicas: int | None = None
    topic_created: bool = False
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GroupFate:
    """Result of a cancel or reschedule in one group: ``cancelled``, ``rescheduled``, ``in_flight``, ``dead`` or ``absent``."""

    group: str
    status: str


@dataclass(frozen=True)
class Control:
    """The outcome of a cancel or a reschedule: `status` is ``cancelled``, ``rescheduled`` or ``partly``."""

    id: str
    status: str
    partition: int
    groups: list[GroupFate]
    due_at: datetime | None = None
    buffered: bool = False


@dataclass(frozen=True)
class LastError:
    """The reason of the last nack. A worker gives the class of the exception, and where it was raised."""

    message: str = ""
    class_: str | None = None
    stack: str | None = None


@dataclass(frozen=True)
class FailedAttempt:
    """An attempt that failed."""

    at: datetime
    attempt: int
    reason: str = ""


@dataclass(frozen=True)
class DeadLetterSource:
    """The dead letter that a message was in another topic."""

    topic: str
    group: str
    id: str
    reason: str
    attempts: int
    died_at: datetime
    hops: int = 1
    last_error: LastError | None = None


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The payload of a message, and all that travels with it."""

    payload: bytes = b""
    key: str | None = None
    pushed_at: datetime | None = None
    content_type: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    dedup_key: str | None = None
    dead_letter_source: DeadLetterSource | None = None
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priority: int = 0
    traceparent: str | None = None
    tracestate: str | None = None

    @property
    def text(self) -> str:
        """The payload as text."""
        return self.payload.decode()

    def json(self) -> Any:
        """The payload, read as JSON."""
        return json.loads(self.payload)


@dataclass(frozen=True, kw_only=True)
class ListedMessage(Contents):
    """A message of a list, and its state in a group: ``scheduled``, ``ready``, ``blocked``, ``backoff``, ``in_flight`` or ``dead``."""

    id: str
    state: str
    partition: int
    attempts: int
    due_at: datetime | None = None
    next_at: datetime | None = None
    expires_at: datetime | None = None
    died_at: datetime | None = None
    history: list[FailedAttempt] = field(default_factory=list)
    unreadable: str | None = None


@dataclass(frozen=True, kw_only=True)
class Message(ListedMessage):
    """A message and its state in a group. With its `etag` it is rescheduled only if it is still the same."""

    etag: str | None = None
    max_attempts: int | None = None
    owner: str | None = None
    #: When the message that follows it is due: it is delivered once this one has ended.
    successor_due_at: datetime | None = None
    reason: str | None = None
    last_error: LastError | None = None


@dataclass(frozen=True, kw_only=True)
class DeadLetter(Contents):
    """A dead letter. `reason` is ``max_attempts``, ``buried``, ``unreadable`` or ``expired``."""

    id: str
    partition: int
    died_at: datetime
    reason: str
    attempts: int
    due_at: datetime | None = None
    last_error: LastError | None = None
    history: list[FailedAttempt] = field(default_factory=list)
    unforwarded: str | None = None
    unreadable: str | None = None


@dataclass(frozen=True)
class GroupReason:
    """Why a message is not delivered yet in one group."""

    group: str
    reason: str
    detail: str = ""
    blocker: str | None = None
    owner: str | None = None
    until: datetime | None = None
    last_error: LastError | None = None


@dataclass(frozen=True)
class Explained:
    """Why a message is not delivered yet: one reason for each group of the topic."""

    id: str
    partition: int
    groups: list[GroupReason]
    buffered: bool = False


# Topics and groups


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Messages of a group by state."""

    scheduled: int = 0
    ready: int = 0
    blocked: int = 0
    backoff: int = 0
    in_flight: int = 0
    dead: int = 0
    oldest_ready_age_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class GroupTotals(Counts):
    """The messages of a group in all partitions. `state` is ``active``, ``paused``, ``closed`` or ``copying``."""

    group: str
    state: str


@dataclass(frozen=True, kw_only=True)
class PartitionState(Counts):
    """The messages of a group in one partition, and the broker that owns it."""

    group: str
    partition: int
    next_due_at: datetime | None = None
    owner: str | None = None


@dataclass(frozen=True)
class Topic:
    """A topic. Its `settings` have a `timedelta` for each duration, and can be given to `create_topic`."""

    topic: str
    groups: list[str]
    settings: TopicSettings


@dataclass(frozen=True)
class TopicDescription(Topic):
    """A topic and how many messages are in it."""

    totals: list[GroupTotals]
    partitions: list[PartitionState]


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group. `state` is ``active``, ``paused``, ``closed`` (outside of its window) or ``copying``; the last three deliver nothing. `fair` is
    ``key`` if the keys take turns, and `None` if nothing does. `key_max_in_flight` is how many deliveries of one key are in flight at most, and
    `key_rate` how many of them there are in a second; both are `None` without a limit. `key_burst` is how many deliveries of one key may come at
    once, and `None` means 1. `weights` is how large the shares of some keys are, where others have 1, and `key_limits` are other limits for some
    keys: both by the name of a key, or the beginning of names with a ``*`` behind it. They are empty if there are none."""

    group: str
    state: str
    paused_until: datetime | None = None
    opens_at: datetime | None = None
    copy_of: str | None = None
    rate: float | None = None
    max_in_flight: int | None = None
    window: DeliveryWindow | None = None
    fair: str | None = None
    key_max_in_flight: int | None = None
    key_rate: float | None = None
    key_burst: int | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    key_limits: Mapping[str, KeyLimit] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A broker that is a member of a group."""

    member: str
    demand: bool = False
    owned: int = 0
    waiting: int = 0
    version: str | None = None
    heard_at: datetime | None = None


@dataclass(frozen=True)
class KeyState:
    """A key of a fair group; `None` for the messages without one. `reason` is what its next message waits for, if the key holds it up:
    ``key_paused``, ``key_at_max_in_flight`` or ``key_rate_limited``. `until` is when the key may have its next delivery, if it waits for a
    time."""

    ready: int
    in_flight: int
    key: str | None = None
    reason: str | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class KeyPause:
    """A key of a fair group. `paused_until` is when its pause ends, and `None` if it is not paused."""

    key: str
    paused_until: datetime | None = None


@dataclass(frozen=True)
class GroupKeys:
    """How many keys of a fair group have messages due or in flight, and the busiest.

    `complete`: all partitions that have such messages have an owner, which answered in time. `paused_count` is how many keys are paused, whether
    they have messages or not, and `paused` are those that are free first, 100 at most.
    """

    count: int
    complete: bool
    busiest: list[KeyState]
    paused_count: int = 0
    paused: list[KeyPause] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class GroupDescription(Group):
    """A group, how many messages are in it, the brokers that are its members, and if it is fair, the keys that have messages."""

    totals: Counts
    partitions: list[PartitionState]
    members: list[Member]
    keys: GroupKeys | None = None


# Operations on many messages


@dataclass(frozen=True)
class Purged:
    """How many messages were deleted, or with `dry_run` how many would be (`matching`)."""

    purged: int = 0
    matching: int | None = None


@dataclass(frozen=True)
class Redriven:
    """How many dead letters are ready again, or with `dry_run` how many would be (`matching`)."""

    redriven: int = 0
    matching: int | None = None


@dataclass(frozen=True)
class BulkChanged:
    """How many messages a bulk operation has changed, and how many it left unchanged."""

    changed: int = 0
    passed_over: int = 0


@dataclass(frozen=True)
class Moved:
    """Progress of a move: `in_flight` messages are still with consumers of the old topic."""

    moved: int = 0
    dead: int = 0
    duplicates: int = 0
    in_flight: int = 0
    done: bool = False


@dataclass(frozen=True)
class Due:
    """Messages that become due in a span of time that ends with `until`."""

    until: datetime
    due: int


@dataclass(frozen=True)
class GroupForecast:
    """How many messages of a group become due, in equal spans of `step`."""

    from_: datetime
    step: timedelta
    ready: int
    spans: list[Due]
    later: int
    backoff: int = 0


@dataclass(frozen=True)
class Found:
    """An inconsistency of stored data."""

    defect: str
    id: str
    partition: int


@dataclass(frozen=True)
class Findings:
    """Inconsistencies of stored data, and how many entries were looked at."""

    findings: list[Found]
    seen: int


# Cron


@dataclass(frozen=True, kw_only=True)
class CronJob:
    """A recurring message. `state` is ``active``, ``paused`` or ``failed``."""

    name: str
    state: str
    paused: bool = False
    missed: str = "last"
    cron: str | None = None
    time_zone: str | None = None
    every: timedelta | None = None
    from_: datetime | None = None
    next_at: datetime | None = None
    failure: str | None = None
    payload: bytes = b""
    content_type: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    ttl: timedelta | None = None
    max_attempts: int | None = None


# Brokers


@dataclass(frozen=True, kw_only=True)
class ListedBroker:
    """A broker of the store."""

    member: str
    version: str
    doing: str
    here: bool = False
    owned: int = 0
    groups: int = 0
    demanded: int = 0
    waiting: int = 0
    wal_records: int = 0
    wal_bytes: int = 0
    wal_limit_bytes: int = 0
    journal_records: int = 0
    journal_bytes: int = 0
    clock_ahead_ms: int | None = None
    started_at: datetime | None = None
    heard_at: datetime | None = None


@dataclass(frozen=True)
class AttentionItem:
    """A reason to act."""

    kind: str
    cause: str
    topic: str | None = None
    group: str | None = None
    alert: str | None = None


@dataclass(frozen=True)
class AttentionList:
    """The reasons to act, the most urgent first. None: all is well."""

    attention: list[AttentionItem]
    topics: int
    topics_seen: int
