package dwell

// PushStatus is the outcome of a push.
type PushStatus string

// Outcomes of a push.
const (
	// PushStored: the message is in the store.
	PushStored PushStatus = "stored"
	// PushJournaled: the message is in the store, and for a while also on the broker's disk.
	PushJournaled PushStatus = "journaled"
	// PushBuffered: the message is on the broker's disk until the store is available.
	PushBuffered PushStatus = "buffered"
	// PushDuplicate: the id or the dedup key was there, and nothing changed.
	PushDuplicate PushStatus = "duplicate"
	// PushReplaced: this message replaced one that waited.
	PushReplaced PushStatus = "replaced"
	// PushDebounced: a message that waited has the due time of this push.
	PushDebounced PushStatus = "debounced"
	// PushRefused: this message of a batch was not accepted.
	PushRefused PushStatus = "error"
)

// Conflict is what a push does if the topic has a message with its id.
type Conflict string

// Policies for an id that the topic has.
const (
	ConflictKeep     Conflict = "keep"
	ConflictReject   Conflict = "reject"
	ConflictReplace  Conflict = "replace"
	ConflictDebounce Conflict = "debounce"
	ConflictAfter    Conflict = "after"
)

// Past is what happens if a due time is in the past.
type Past string

// Policies for a due time in the past.
const (
	// PastNow delivers the message at once.
	PastNow Past = "now"
	// PastReject refuses the request.
	PastReject Past = "reject"
)

// ControlStatus is the outcome of a cancel or a reschedule.
type ControlStatus string

// Outcomes of a cancel or a reschedule.
const (
	ControlCancelled   ControlStatus = "cancelled"
	ControlRescheduled ControlStatus = "rescheduled"
	// ControlPartly: a consumer has the message in one of the groups.
	ControlPartly ControlStatus = "partly"
)

// Fate is the outcome of a cancel or a reschedule in one group.
type Fate string

// Outcomes of a cancel or a reschedule in one group.
const (
	FateCancelled   Fate = "cancelled"
	FateRescheduled Fate = "rescheduled"
	FateInFlight    Fate = "in_flight"
	FateDead        Fate = "dead"
	FateAbsent      Fate = "absent"
)

// MessageState is the state of a message in a group.
type MessageState string

// States of a message in a group.
const (
	StateScheduled MessageState = "scheduled"
	StateReady     MessageState = "ready"
	StateBlocked   MessageState = "blocked"
	StateBackoff   MessageState = "backoff"
	StateInFlight  MessageState = "in_flight"
	StateDead      MessageState = "dead"
)

// DeathReason is why a message is dead.
type DeathReason string

// Why a message is dead.
const (
	DeathMaxAttempts DeathReason = "max_attempts"
	DeathBuried      DeathReason = "buried"
	DeathUnreadable  DeathReason = "unreadable"
	DeathExpired     DeathReason = "expired"
)

// Ordering is the order of delivery within a topic.
type Ordering string

// Orders of delivery.
const (
	OrderingNone Ordering = "none"
	// OrderingKey delivers the messages of a key one after the other.
	OrderingKey Ordering = "key"
)

// Expiry is what happens to a message that expires.
type Expiry string

// Policies for a message that expires.
const (
	ExpiryDrop Expiry = "drop"
	ExpiryBury Expiry = "bury"
)

// BackoffKind is how the delay between attempts grows.
type BackoffKind string

// Kinds of backoff.
const (
	BackoffExponential BackoffKind = "exponential"
	BackoffLadder      BackoffKind = "ladder"
)

// GroupState is the state of a group. Groups that are paused, closed or copying deliver nothing.
type GroupState string

// States of a group.
const (
	GroupActive  GroupState = "active"
	GroupPaused  GroupState = "paused"
	GroupClosed  GroupState = "closed"
	GroupCopying GroupState = "copying"
)

// Fairness is what takes turns in a group.
type Fairness string

// What takes turns in a group.
const (
	// FairnessNone hands messages out in the order of their due times.
	FairnessNone Fairness = "none"
	// FairnessKey gives each key that has due messages its share of the deliveries, however many another one has.
	FairnessKey Fairness = "key"
)

// Weekday is a day on which the window of a group opens.
type Weekday string

// Days of the week.
const (
	Monday    Weekday = "mon"
	Tuesday   Weekday = "tue"
	Wednesday Weekday = "wed"
	Thursday  Weekday = "thu"
	Friday    Weekday = "fri"
	Saturday  Weekday = "sat"
	Sunday    Weekday = "sun"
)

// Order is the order of a list.
type Order string

// Orders of a list.
const (
	// OrderPartition lists partition by partition.
	OrderPartition Order = "partition"
	// OrderDue lists messages by the time at which they are tried next, over all partitions.
	OrderDue Order = "due"
	// OrderNewest lists dead letters by the time of their death, the newest first.
	OrderNewest Order = "newest"
	// OrderOldest lists dead letters by the time of their death, the oldest first.
	OrderOldest Order = "oldest"
)

// BulkAction is what a bulk operation does to messages.
type BulkAction string

// Bulk operations.
const (
	BulkCancel   BulkAction = "cancel"
	BulkPostpone BulkAction = "postpone"
	BulkAdvance  BulkAction = "advance"
	BulkPark     BulkAction = "park"
	BulkUnpark   BulkAction = "unpark"
)

// CronState is the state of a cron job.
type CronState string

// States of a cron job.
const (
	CronActive CronState = "active"
	CronPaused CronState = "paused"
	// CronFailed: the broker cannot compute the next time.
	CronFailed CronState = "failed"
)

// Missed is which missed occurrences of a cron job are pushed later.
type Missed string

// Policies for missed occurrences.
const (
	MissedLast Missed = "last"
	MissedSkip Missed = "skip"
	MissedAll  Missed = "all"
)

// Defect is an inconsistency of stored data.
type Defect string

// Inconsistencies of stored data.
const (
	DefectBodyWithoutID     Defect = "body_without_id"
	DefectIDWithoutBody     Defect = "id_without_body"
	DefectChargeWithoutBody Defect = "charge_without_body"
	DefectDeadIDWithoutBody Defect = "dead_id_without_body"
	DefectDeadBodyWithoutID Defect = "dead_body_without_id"
)

// WaitReason is why a message is not delivered yet.
type WaitReason string

// Why a message is not delivered yet.
const (
	WaitScheduled      WaitReason = "scheduled"
	WaitRetrying       WaitReason = "retrying"
	WaitPaused         WaitReason = "paused"
	WaitClosed         WaitReason = "closed"
	WaitCopying        WaitReason = "copying"
	WaitNoConsumer     WaitReason = "no_consumer"
	WaitRateLimited    WaitReason = "rate_limited"
	WaitMaxInFlight    WaitReason = "at_max_in_flight"
	WaitKeyPaused      WaitReason = "key_paused"
	WaitKeyMaxInFlight WaitReason = "key_at_max_in_flight"
	WaitKeyRateLimited WaitReason = "key_rate_limited"
	WaitBehindOthers   WaitReason = "behind_others"
	WaitReady          WaitReason = "ready"
	WaitPrefetched     WaitReason = "prefetched"
	WaitBackoff        WaitReason = "backoff"
	WaitBehindItsKey   WaitReason = "behind_its_key"
	WaitInFlight       WaitReason = "in_flight"
	WaitMoving         WaitReason = "moving"
	WaitDecided        WaitReason = "decided"
	WaitElsewhere      WaitReason = "elsewhere"
	WaitDead           WaitReason = "dead"
	WaitBuffered       WaitReason = "buffered"
	WaitUnknown        WaitReason = "unknown"
)

// FaultCode is the kind of a mistake in a field.
type FaultCode string

// Kinds of mistakes in a field.
const (
	FaultType      FaultCode = "type"
	FaultUnknown   FaultCode = "unknown"
	FaultMissing   FaultCode = "missing"
	FaultRepeated  FaultCode = "repeated"
	FaultFormat    FaultCode = "format"
	FaultRange     FaultCode = "range"
	FaultChoice    FaultCode = "choice"
	FaultExclusive FaultCode = "exclusive"
	FaultTooLarge  FaultCode = "too_large"
	FaultInvalid   FaultCode = "invalid"
)

// Event is something that happened to a delivery, for metrics. Except for EventSettled it is the name of a counter in Stats.
type Event string

// Events of a worker.
const (
	EventDelivered      Event = "delivered"
	EventAcked          Event = "acked"
	EventNacked         Event = "nacked"
	EventBuried         Event = "buried"
	EventReleased       Event = "released"
	EventExtended       Event = "extended"
	EventStale          Event = "stale"
	EventLost           Event = "lost"
	EventPollFailures   Event = "poll_failures"
	EventSettleFailures Event = "settle_failures"
	// EventSettled: the delivery is over, whatever its verdict.
	EventSettled Event = "settled"
)
