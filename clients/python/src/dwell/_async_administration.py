"""The administration of a broker: topics, groups, dead letters, many messages at once, cron jobs, and the brokers."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterable, List, Literal, Mapping

from . import _requests as requests
from ._async_http import AsyncTransport
from .answers import (
    AttentionList, BulkChanged, CronJob, DeadLetter, Findings, Found, Group, GroupDescription, GroupForecast, KeyPause, ListedBroker,
    Moved, Purged, Redriven, Topic, TopicDescription,
)
from .settings import (
    BulkAction, DeathReason, DeliveryWindow, Fairness, Identified, KeyLimit, Missed, TopicSettings, payload_field, settings_body,
)
from .values import Duration, Time, duration_field, from_answer, not_empty, time_field

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncAdministration:
    """The calls of `AsyncClient` that operators and deployments need."""

    _transport: AsyncTransport

    # Topics

    async def create_topic(self, topic: str, **settings: Unpack[TopicSettings]) -> Topic:
        """Creates a topic, or changes the given settings of it, such as ``max_attempts=5``. Repeating it changes nothing."""
        return from_answer(Topic, await self._call("PUT", requests.topic_path(topic), settings_body(settings)))

    async def topic(self, topic: str) -> TopicDescription:
        """Gets a topic with its settings and counts."""
        return from_answer(TopicDescription, await self._call("GET", requests.topic_path(topic)))

    async def topics(self) -> AsyncIterator[str]:
        """Iterates over the names of all topics."""
        async for page in self._pages("/v1/topics", {}):
            for topic in page["topics"]:
                yield topic

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic with all its messages."""
        await self._call("DELETE", requests.topic_path(topic))

    async def forecast(
        self, topic: str, group: str = "default", *, step: Duration | None = None, spans: int | None = None
    ) -> GroupForecast:
        """Counts the messages that become due, in `spans` equal spans of `step`. Default: 60 of a minute."""
        query = {**duration_field("step", step), **requests.given(spans=spans)}
        path = requests.with_query(requests.group_path(topic, group, "forecast"), query)
        return from_answer(GroupForecast, await self._call("GET", path))

    async def move(
        self, topic: str, to: str, *, partitions: int | None = None, on_progress: Callable[[Moved], object] | None = None
    ) -> Moved:
        """Moves the messages of a topic to another topic, until nothing is left. Returns how many were moved in all.

        It waits for messages that consumers have. `on_progress` is called with the sums after each request.
        """
        body = {"to": not_empty("to", to), **requests.given(partitions=partitions)}
        moved = dead = duplicates = 0
        while True:
            page = from_answer(Moved, await self._call("POST", requests.topic_path(topic, "move"), body))
            moved, dead, duplicates = moved + page.moved, dead + page.dead, duplicates + page.duplicates
            sums = Moved(moved, dead, duplicates, page.in_flight, page.done)
            if on_progress:
                on_progress(sums)
            if page.done:
                return sums
            if not page.moved:
                await sleep(1.0)

    # Groups

    async def groups(self, topic: str) -> List[Group]:
        """Gets the groups of a topic."""
        answer = await self._call("GET", requests.topic_path(topic, "groups"))
        return [from_answer(Group, group) for group in answer["groups"]]

    async def group(self, topic: str, group: str = "default") -> GroupDescription:
        """Gets a group with its state, counts and members."""
        return from_answer(GroupDescription, await self._call("GET", requests.group_path(topic, group)))

    async def create_group(
        self, topic: str, group: str, *, copy_of: str | None = None, rate: float | None = None, max_in_flight: int | None = None,
        window: DeliveryWindow | None = None, fair: Fairness | None = None, key_max_in_flight: int | None = None,
        key_rate: float | None = None, key_burst: int | None = None, weights: Mapping[str, int] | None = None,
        key_limits: Mapping[str, KeyLimit] | None = None,
    ) -> Group:
        """Creates a group, or changes its limits, its window and whether its keys take turns (`fair`). `key_max_in_flight` is how many
        deliveries of one key are in flight at most, and `key_rate` how many of them there are in a second; 0 is without a limit, and only a fair
        group may have one. `key_burst` is how many deliveries of one key may come at once, 1 unless it is given; a `key_rate` of 0 removes it. A
        new group gets what is pushed from then on, and a copy of `copy_of`.

        `weights` is how large the shares of some keys are, 1 to 100, where others have 1, and `key_limits` are other limits for some keys: each
        has up to 100 names of keys, or beginnings of names with a ``*`` behind them, such as ``gold-*``. The name of a key counts before a
        beginning, and the longest beginning before others. They replace all that there were, and an empty one removes them. Only a fair group
        may have them.
        """
        body = requests.given(
            copy_of=copy_of, rate=rate, max_in_flight=max_in_flight, window=window, fair=fair, key_max_in_flight=key_max_in_flight,
            key_rate=key_rate, key_burst=key_burst, weights=weights, key_limits=key_limits,
        )
        return from_answer(Group, await self._call("PUT", requests.group_path(topic, group), body))

    async def delete_group(self, topic: str, group: str) -> None:
        """Deletes a group with all its messages."""
        await self._call("DELETE", requests.group_path(topic, group))

    async def pause(
        self, topic: str, group: str = "default", for_: Duration | None = None, *, until: Time | None = None
    ) -> Group:
        """Pauses a group for a time, until a time, or else until it is resumed."""
        if for_ is not None and until is not None:
            raise ValueError("for_ and until exclude each other")
        body = {**duration_field("for", for_), **time_field("until", until)}
        return from_answer(Group, await self._call("POST", requests.group_path(topic, group, "pause"), body))

    async def resume(self, topic: str, group: str = "default") -> Group:
        """Resumes a group."""
        return from_answer(Group, await self._call("POST", requests.group_path(topic, group, "resume")))

    async def pause_key(
        self, topic: str, group: str, key: str, for_: Duration | None = None, *, until: Time | None = None
    ) -> KeyPause:
        """Pauses a key of a fair group for a time or until a time, unless it is resumed before. One of the two has to be given."""
        if for_ is None and until is None:
            raise ValueError("pause_key needs for_ or until")
        if for_ is not None and until is not None:
            raise ValueError("for_ and until exclude each other")
        body = {**duration_field("for", for_), **time_field("until", until)}
        return from_answer(KeyPause, await self._call("POST", requests.key_path(topic, group, key, "pause"), body))

    async def resume_key(self, topic: str, group: str, key: str) -> KeyPause:
        """Resumes a key of a fair group."""
        return from_answer(KeyPause, await self._call("POST", requests.key_path(topic, group, key, "resume")))

    async def purge(
        self, topic: str, group: str = "default", *, all: Literal[True], dead_letters: bool = False, dry_run: bool = False
    ) -> Purged:
        """Deletes all messages of a group, also those in flight. `all` has to be given. With `dry_run` it only counts them."""
        if all is not True:
            raise ValueError("purge needs all=True")
        body = {"all": True, **requests.given(dead_letters=dead_letters or None, dry_run=dry_run or None)}
        path = requests.group_path(topic, group, "purge")
        return from_answer(Purged, await self._call("POST", path, body, is_repeatable=False))

    async def verify(self, topic: str, group: str = "default", *, repair: bool = False) -> Findings:
        """Verifies that the stored data of a group is consistent, to the end. With `repair` it is repaired."""
        path, query = requests.group_path(topic, group, "verify"), {"cursor": None}
        findings: List[Found] = []
        seen = 0
        while True:
            answer = await self._call("POST" if repair else "GET", requests.with_query(path, query))
            page = from_answer(Findings, answer)
            findings, seen = findings + page.findings, seen + page.seen
            if "next_cursor" not in answer:
                return Findings(findings, seen)
            query = {"cursor": answer["next_cursor"]}

    # Dead letters

    async def dead_letters(
        self,
        topic: str,
        group: str = "default",
        *,
        order: Literal["newest", "oldest", "partition"] | None = None,
        reason: DeathReason | None = None,
        older_than: Duration | None = None,
        younger_than: Duration | None = None,
        text: str | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Iterates over dead letters, page by page. `text` is in the last error or in the payload. `page_size` is 1 to 1,000."""
        query = {
            **requests.dead_letters_filter(reason, older_than, younger_than, text),
            **requests.given(order=order, limit=page_size),
        }
        async for page in self._pages(requests.group_path(topic, group, "dead-letters"), query):
            for message in page["dead_letters"]:
                yield from_answer(DeadLetter, message)

    async def redrive(
        self,
        topic: str,
        group: str = "default",
        *,
        ids: Iterable[str | Identified] | None = None,
        all: bool = False,
        reason: DeathReason | None = None,
        older_than: Duration | None = None,
        younger_than: Duration | None = None,
        text: str | None = None,
        limit: int | None = None,
        rate: int | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Makes dead letters ready again: those of `ids`, those that match, or `all`. `rate` is how many a second, at most."""
        filters = requests.dead_letters_filter(reason, older_than, younger_than, text)
        limits = requests.given(limit=limit, rate=rate, dry_run=dry_run or None)
        bodies = requests.selections(ids, all, filters, limits)
        count, matching = await self._each_page(requests.group_path(topic, group, "dead-letters", "redrive"), bodies, "redriven")
        return Redriven(count, matching)

    async def purge_dead_letters(
        self,
        topic: str,
        group: str = "default",
        *,
        ids: Iterable[str | Identified] | None = None,
        all: bool = False,
        reason: DeathReason | None = None,
        older_than: Duration | None = None,
        younger_than: Duration | None = None,
        text: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Purged:
        """Deletes dead letters for good: those of `ids`, those that match, or `all`."""
        filters = requests.dead_letters_filter(reason, older_than, younger_than, text)
        limits = requests.given(limit=limit, dry_run=dry_run or None)
        bodies = requests.selections(ids, all, filters, limits)
        count, matching = await self._each_page(requests.group_path(topic, group, "dead-letters", "purge"), bodies, "purged")
        return Purged(count, matching)

    # Messages by due time

    async def count_bulk(self, topic: str, group: str = "default", *, from_: Time, to: Time) -> int:
        """Counts the messages that are due from a time on and before another: those that `bulk` changes."""
        query = {**time_field("from", from_), **time_field("to", to)}
        answer = await self._call("GET", requests.with_query(requests.group_path(topic, group, "bulk"), query))
        return int(answer["waiting"])

    async def bulk(
        self,
        topic: str,
        group: str = "default",
        *,
        action: BulkAction,
        from_: Time,
        to: Time,
        by: Duration | None = None,
        on_progress: Callable[[BulkChanged], object] | None = None,
    ) -> BulkChanged:
        """Changes the messages that are due from a time on and before another. ``postpone`` and ``advance`` need `by`.

        Returns the sums. `on_progress` is called with the sums after each request. A ``postpone`` or ``advance`` whose answer is
        lost is not repeated, since it may have moved messages: it raises `Unavailable`.
        """
        body = {"action": action, **time_field("from", from_), **time_field("to", to), **duration_field("by", by)}
        path = requests.group_path(topic, group, "bulk")
        sums = BulkChanged()
        while True:
            answer = await self._call("POST", path, body, is_repeatable=action not in ("postpone", "advance"))
            page = from_answer(BulkChanged, answer)
            sums = BulkChanged(sums.changed + page.changed, sums.passed_over + page.passed_over)
            if on_progress:
                on_progress(sums)
            if "next_cursor" not in answer:
                return sums
            body["cursor"] = answer["next_cursor"]

    # Cron

    async def put_cron(
        self,
        topic: str,
        name: str,
        payload: Any,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        from_: Time | None = None,
        time_zone: str | None = None,
        missed: Missed | None = None,
        ttl: Duration | None = None,
        max_attempts: int | None = None,
        content_type: str | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> CronJob:
        """Creates or changes a recurring message: by a `cron` expression in a `time_zone`, or `every` so often."""
        if (cron is None) == (every is None):
            raise ValueError("give cron or every")
        body = {
            **payload_field(payload),
            **duration_field("every", every),
            **duration_field("ttl", ttl),
            **time_field("from", from_),
            **requests.given(
                cron=cron, time_zone=time_zone, missed=missed, max_attempts=max_attempts, content_type=content_type, meta=meta
            ),
        }
        return from_answer(CronJob, await self._call("PUT", self._cron(topic, name), body))

    async def cron(self, topic: str, name: str) -> CronJob:
        """Gets a cron job, with the time of its next occurrence."""
        return from_answer(CronJob, await self._call("GET", self._cron(topic, name)))

    async def crons(self, topic: str) -> AsyncIterator[CronJob]:
        """Iterates over the cron jobs of a topic."""
        async for page in self._pages(requests.topic_path(topic, "cron"), {}):
            for job in page["cron_jobs"]:
                yield from_answer(CronJob, job)

    async def pause_cron(self, topic: str, name: str) -> CronJob:
        """Pauses a cron job."""
        return from_answer(CronJob, await self._call("POST", self._cron(topic, name, "pause")))

    async def resume_cron(self, topic: str, name: str) -> CronJob:
        """Resumes a cron job. Occurrences that were missed are not pushed."""
        return from_answer(CronJob, await self._call("POST", self._cron(topic, name, "resume")))

    async def delete_cron(self, topic: str, name: str) -> None:
        """Deletes a cron job. Messages that it has pushed stay."""
        await self._call("DELETE", self._cron(topic, name))

    # Brokers

    async def brokers(self) -> List[ListedBroker]:
        """Gets the brokers that share the store."""
        answer = await self._call("GET", "/v1/brokers")
        return [from_answer(ListedBroker, broker) for broker in answer["brokers"]]

    async def attention(self) -> AttentionList:
        """Gets what needs attention, the most urgent first."""
        return from_answer(AttentionList, await self._call("GET", "/v1/attention"))

    # Used by the calls above

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, is_repeatable: bool = True
    ) -> Any:
        return await self._transport.call(method, path, body, is_repeatable=is_repeatable)

    async def _pages(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        cursor = None
        while True:
            page = await self._call("GET", requests.with_query(path, {**query, "cursor": cursor}))
            yield page
            cursor = page.get("next_cursor")
            if not cursor:
                return

    async def _each_page(self, path: str, bodies: List[dict[str, Any]], counter: str) -> tuple[int, int | None]:
        """Sends each body until there is no further page. Returns the sums of the counter and of what matches."""
        count, matching = 0, 0
        for body in bodies:
            limit = body.get("limit")
            while True:
                answer = await self._call("POST", path, body)
                count += answer.get(counter, 0)
                matching += answer.get("matching", 0)
                if "next_cursor" not in answer or (limit and max(count, matching) >= limit):
                    break
                body["cursor"] = answer["next_cursor"]
                if limit:
                    body["limit"] = limit - max(count, matching)
        is_counted = any(body.get("dry_run") for body in bodies)
        return count, matching if is_counted else None

    @staticmethod
    def _cron(topic: str, name: str, *parts: str) -> str:
        return requests.topic_path(topic, "cron", not_empty("name", name), *parts)
