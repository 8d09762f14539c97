/** Topics and groups: their settings, and what is in them. */

import type { DeathReason } from "./messages.js";
import type { Duration, Time } from "./values.js";

/**
 * Settings of a topic. In a call, those that are absent stay as they are, or have their defaults in a new topic. In an answer, all are
 * there, and durations are numbers of milliseconds.
 */
export interface TopicSettings {
  /** 1 to 1,024; cannot be changed later. Default 8. */
  partitions?: number;
  /** How long a consumer has to settle a delivery. Default 30 s. */
  visibilityTimeout?: Duration;
  /** Attempts before a message is dead; 0 is without a limit. Default 16. */
  maxAttempts?: number;
  /** The delay between attempts. */
  backoff?: Backoff;
  /** How long after its ack a push with the id of a message is still a duplicate. Default 0. */
  dedupWindow?: Duration;
  /** `key`: the messages of a key one after the other; cannot be changed later. Default `none`. */
  ordering?: "none" | "key";
  /** How long after its due time a message is worth delivering; 0 is indefinitely. Default 0. */
  ttl?: Duration;
  /** What happens to an expired message. Default `drop`. */
  onExpiry?: "drop" | "bury";
  /** How long dead letters are kept; 0 is indefinitely. Default 0. */
  deadMaxAge?: Duration;
  /** How many dead letters a group keeps in each partition; 0 is all. Default 0. */
  deadMaxCount?: number;
  /** The topic to which dead letters move; an empty name is none. */
  deadLetter?: { topic: string };
  /** Texts about the topic, which dwell does not read. Those that are absent stay; an empty text removes one. */
  annotations?: Record<string, string>;
}

/** Delays that grow by a factor, or listed ones, of which the last one repeats. */
export type Backoff =
  | { kind: "exponential"; initial: Duration; max: Duration; factor: number; jitter: number }
  | { kind: "ladder"; steps: Duration[] };

/** A topic. */
export interface Topic {
  topic: string;
  groups: string[];
  settings: TopicSettings;
}

/** Messages of a group by state. */
export interface Counts {
  scheduled: number;
  ready: number;
  blocked: number;
  backoff: number;
  inFlight: number;
  dead: number;
  /** How long the oldest message that is ready or blocked has been due, in milliseconds. */
  oldestReadyAge?: number;
}

export type GroupState = "active" | "paused" | "closed" | "copying";

/** A topic and what is in it. */
export interface TopicDescription extends Topic {
  /** One for every group. */
  totals: (Counts & { group: string; state: GroupState })[];
  /** One for every partition and group. */
  partitions: PartitionState[];
}

/** The messages of a group in one partition. */
export interface PartitionState extends Counts {
  partition: number;
  group: string;
  nextDueAt?: Date;
  /** The broker that owns the partition. */
  owner?: string;
}

/** Limits of a group. Those that are absent stay as they are; 0 is without a limit. */
export interface GroupSettings {
  /** The group of which a new one gets a copy. */
  copyOf?: string;
  /** Messages a second, of all brokers together. */
  rate?: number;
  /** Deliveries in flight in all partitions together. */
  maxInFlight?: number;
  /** When messages are delivered; outside of it the group is closed. */
  window?: DeliveryWindow;
  /** What takes turns; `none` ends it. Default `none`. */
  fair?: Fairness;
  /** Deliveries of one key in flight; only in a fair group. */
  keyMaxInFlight?: number;
  /** Deliveries of one key a second; only in a fair group. 0 removes `keyBurst` too. */
  keyRate?: number;
  /** How many deliveries of one key may come at once, at least 1; only with a `keyRate`. Default 1. */
  keyBurst?: number;
  /**
   * How large the shares of some keys are, 1 to 100, where others have 1: 100 at most, by the name of a key, or the beginning of names with a `*`
   * behind it, such as `gold-*`. The name of a key counts before a beginning, and the longest beginning before others. Replaces all weights; `{}`
   * removes them. Only in a fair group.
   */
  weights?: Record<string, number>;
  /**
   * Other limits for some keys, by names and beginnings as in `weights`, 100 at most. Replaces all of them; `{}` removes them. Only in a fair
   * group.
   */
  keyLimits?: Record<string, KeyLimit>;
}

/** Limits of some keys of a fair group. One that is absent is that of the group. */
export interface KeyLimit {
  /** Deliveries in flight of each such key, at most; 0 is without a limit. */
  maxInFlight?: number;
  /** Deliveries of each such key a second, at most, 0.001 to 100,000; 0 is without a limit. */
  rate?: number;
  /** How many deliveries of each such key may come at once, 1 to 10,000; only with a `rate`. Default 1. */
  burst?: number;
}

/**
 * `key`: each key that has due messages has its share of the deliveries, however many another one has. `none`: messages are delivered in the
 * order of their due times.
 */
export type Fairness = "none" | "key";

export type Weekday = "mon" | "tue" | "wed" | "thu" | "fri" | "sat" | "sun";

/** Days and a time of day, such as `{ from: "09:00", to: "17:30" }`. `{}` is always. */
export interface DeliveryWindow {
  /** The days on which it opens. Default: every day. */
  days?: Weekday[];
  /** When it opens. */
  from?: string;
  /** When it closes: on the next day, unless this is later than `from`. */
  to?: string;
  /** The time zone of both, such as `Europe/Berlin`. Default: `UTC`. */
  timeZone?: string;
}

/** A group. */
export interface Group {
  group: string;
  state: GroupState;
  /** When the pause ends by itself. */
  pausedUntil?: Date;
  /** When the window opens, while it is closed. */
  opensAt?: Date;
  /** The group that is being copied. */
  copyOf?: string;
  rate?: number;
  maxInFlight?: number;
  /** When messages are delivered; absent if always. */
  window?: DeliveryWindow;
  /** What takes turns; absent if nothing does. */
  fair?: Fairness;
  /** Deliveries of one key in flight, at most; absent without a limit. */
  keyMaxInFlight?: number;
  /** Deliveries of one key a second, at most; absent without a limit. */
  keyRate?: number;
  /** How many deliveries of one key may come at once; absent means 1. */
  keyBurst?: number;
  /** How large the shares of some keys are, where others have 1, by names and beginnings with a `*`; absent if all have 1. */
  weights?: Record<string, number>;
  /** Other limits for some keys, by names and beginnings with a `*`; absent if there are none. */
  keyLimits?: Record<string, KeyLimit>;
}

/** A group and what is in it. */
export interface GroupDescription extends Group {
  totals: Counts;
  partitions: PartitionState[];
  members: Member[];
  /** The keys that have messages due or in flight; absent if the group is not fair. */
  keys?: GroupKeys;
}

/** The keys of a fair group that have messages due or in flight. */
export interface GroupKeys {
  /** How many there are. Messages without a key are one. */
  count: number;
  /** Whether all partitions that have such messages have an owner, which answered in time. */
  complete: boolean;
  /** Those with the most messages, 100 at most. */
  busiest: KeyState[];
  /** How many keys are paused, whether they have messages or not; absent if none is. */
  pausedCount?: number;
  /** The paused keys, 100 at most, those that are free first; absent if none is. */
  paused?: KeyPause[];
}

/** A key of a fair group, and how long it is paused. */
export interface KeyPause {
  key: string;
  /** When the pause ends; absent if the key is not paused. */
  pausedUntil?: Date;
}

/** A key of a fair group. */
export interface KeyState {
  /** Absent for the messages without a key. */
  key?: string;
  ready: number;
  inFlight: number;
  /** What its next message waits for, if the key holds it up: `key_paused`, `key_at_max_in_flight` or `key_rate_limited`. */
  reason?: string;
  /** When the key may have its next delivery, if it waits for a time. */
  until?: Date;
}

/** A broker that is a member of a group. */
export interface Member {
  member: string;
  version: string;
  /** Whether consumers want messages from it. */
  demand: boolean;
  /** Consumers that wait there. */
  waiting: number;
  /** Partitions that it owns. */
  owned: number;
  heardAt?: Date;
}

/** How long to pause: at most one of the two. Without both until it is resumed. */
export interface PauseOptions {
  for?: Duration;
  until?: Time;
}

/** How long to pause a key: exactly one of the two. */
export type KeyPauseOptions = { for: Duration; until?: never } | { until: Time; for?: never };

/** Which messages of a group to delete. */
export interface PurgeOptions {
  /** All messages of the group, scheduled, ready and in flight. */
  all: true;
  /** Its dead letters too. */
  deadLetters?: boolean;
  /** Only count them. */
  dryRun?: boolean;
}

/** How many messages were deleted, or with `dryRun` would be. */
export interface Purged {
  purged: number;
  matching?: number;
}

/** How many dead letters are ready again, or with `dryRun` would be. */
export interface Redriven {
  redriven: number;
  matching?: number;
}

/** Which dead letters to list. */
export interface DeadLetterFilter {
  reason?: DeathReason;
  olderThan?: Duration;
  youngerThan?: Duration;
  /** Only those with this text in the last error or in the payload. */
  text?: string;
}

/** Dead letters to change: those of `ids`, all that match a filter, or `all`. */
export type DeadLetterSelection =
  | { ids: string[] }
  | (DeadLetterFilter & {
      all?: true;
      /** How many to change at most. */
      limit?: number;
      /** How many to change in a second at most. */
      rate?: number;
      /** Only count them. */
      dryRun?: boolean;
    });

/** The messages that are due from `from` on and before `to`. */
export interface Window {
  from: Time;
  to: Time;
}

/** What to do with the messages of a window. `by` is at least as long as the window. */
export type BulkChange = Window &
  ({ action: "cancel" | "park" | "unpark" } | { action: "postpone" | "advance"; by: Duration });

/** Progress of a bulk operation, and at the end its outcome. */
export interface BulkChanged {
  changed: number;
  /** Left unchanged: a consumer has them, or they expire before the new due time. */
  passedOver: number;
}

/** Progress of a move, and at the end its outcome. */
export interface Moved {
  moved: number;
  dead: number;
  /** Messages whose id the other topic has: dropped. */
  duplicates: number;
  /** Messages that consumers of this topic have. */
  inFlight: number;
  done: boolean;
}

/** The messages that become due, in equal spans of time. */
export interface Forecast {
  from: Date;
  /** How long each span is, in milliseconds. */
  step: number;
  ready: number;
  spans: { until: Date; due: number }[];
  later: number;
  backoff: number;
}

/** What is inconsistent in what is stored of a group. */
export interface Findings {
  /** Entries that were looked at. */
  seen: number;
  findings: { id: string; partition: number; defect: string }[];
}

/** When a message recurs: by a cron expression, or at equal intervals. */
export type Recurrence =
  | { cron: string; /** An IANA name. Default `UTC`. */ timeZone?: string; every?: never; from?: never }
  | { every: Duration; /** Occurrences are whole spans after this. Default 1970. */ from?: Time; cron?: never; timeZone?: never };

/** A recurring message: when it occurs, and what is pushed. */
export type NewCron = Recurrence & {
  /** Bytes, text, or any other value, which is sent as JSON. */
  payload: unknown;
  /** Which missed occurrences are pushed later. Default `last`. */
  missed?: "last" | "skip" | "all";
  ttl?: Duration;
  maxAttempts?: number;
  contentType?: string;
  meta?: Record<string, string>;
};

/** A recurring message. Durations are in milliseconds. */
export interface Cron {
  name: string;
  state: "active" | "paused" | "failed";
  paused: boolean;
  cron?: string;
  timeZone?: string;
  every?: number;
  from?: Date;
  missed: "last" | "skip" | "all";
  ttl?: number;
  maxAttempts?: number;
  /** When it occurs next. */
  nextAt?: Date;
  /** Why it has failed, and what to write. */
  failure?: string;
  payload: Buffer;
  contentType?: string;
  meta: Record<string, string>;
}

/** A broker. */
export interface Broker {
  member: string;
  version: string;
  /** Whether it is the one that answered. */
  here: boolean;
  doing: "serving" | "buffering" | "replaying" | "restoring" | "draining" | "unknown";
  groups: number;
  demanded: number;
  waiting: number;
  owned: number;
  walRecords: number;
  walBytes: number;
  walLimitBytes: number;
  journalRecords: number;
  journalBytes: number;
  startedAt?: Date;
  heardAt?: Date;
  /** How far its clock is ahead of that of the store, in milliseconds. */
  clockAhead?: number;
}

/** The reasons to act, the most urgent first. */
export interface Attention {
  attention: {
    /** Such as `no_consumer`. */
    kind: string;
    topic?: string;
    group?: string;
    /** For people. It may change. */
    cause: string;
    /** The alert of Prometheus for it. */
    alert?: string;
  }[];
  topicsSeen: number;
  topics: number;
}
