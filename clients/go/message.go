package dwell

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// NoLimit is a number of attempts without a limit.
const NoLimit = -1

// NewMessage is a message to push. Give at most one of Delay and DueAt. A field other than Payload that has its zero value is not sent.
type NewMessage struct {
	// Payload is []byte, string, or any other value, which is sent as JSON.
	Payload any
	// ID makes the push repeatable. Default: a new ULID for each push. HTTP refuses an empty id, but an empty ID, Key or DedupKey in
	// this struct means that you give none. If your program computes the ID, check that it is not empty: two pushes without an ID
	// store two messages.
	ID string
	// Key decides the partition; without a key the id does.
	Key   string
	Delay time.Duration
	DueAt time.Time
	// Past says what happens if DueAt is in the past. Default PastNow.
	Past Past
	// TTL is how long after the due time the message is still delivered. Default: the topic's.
	TTL time.Duration
	// Priority is 0 to 9: higher ones are handed out first.
	Priority int
	// MaxAttempts may be NoLimit. Default: the topic's.
	MaxAttempts int
	// DedupKey makes another push of it to the partition within DedupFor a duplicate.
	DedupKey string
	DedupFor time.Duration
	// Spread moves the due time by up to this, by a value that the id decides.
	Spread time.Duration
	// Conflict is what happens if the topic has a message with this id. Default ConflictKeep.
	Conflict Conflict
	// DebounceMax is, with ConflictDebounce, how long after its first push the message may be due at the latest.
	DebounceMax time.Duration
	ContentType string
	Meta        map[string]string
}

// String is the message without its payload.
func (m NewMessage) String() string {
	size := "json"
	switch payload := m.Payload.(type) {
	case []byte:
		size = fmt.Sprintf("%d bytes", len(payload))
	case string:
		size = fmt.Sprintf("%d bytes", len(payload))
	}
	return fmt.Sprintf("NewMessage{id: %q, key: %q, delay: %v, due at: %s, payload: %s}", m.ID, m.Key, m.Delay, shown(m.DueAt), size)
}

// GoString is the message without its payload.
func (m NewMessage) GoString() string { return "dwell." + m.String() }

// shown is a time for people.
func shown(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339Nano)
}

// wireMessage is a message in a request.
type wireMessage struct {
	ID          string     `json:"id"`
	Key         string     `json:"key,omitempty"`
	Delay       *millis    `json:"delay_ms,omitempty"`
	DueAt       *time.Time `json:"due_at,omitempty"`
	Past        Past       `json:"past,omitempty"`
	TTL         *millis    `json:"ttl_ms,omitempty"`
	Priority    int        `json:"priority,omitempty"`
	MaxAttempts *int       `json:"max_attempts,omitempty"`
	DedupKey    string     `json:"dedup_key,omitempty"`
	DedupFor    *millis    `json:"dedup_for_ms,omitempty"`
	Spread      *millis    `json:"spread_ms,omitempty"`
	Conflict    Conflict   `json:"conflict,omitempty"`
	DebounceMax *millis    `json:"debounce_max_ms,omitempty"`
	payloadFields
	ContentType string            `json:"content_type,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	TraceParent string            `json:"traceparent,omitempty"`
	TraceState  string            `json:"tracestate,omitempty"`
}

func (m *NewMessage) check() error {
	if m.Delay != 0 && !m.DueAt.IsZero() {
		return wrong("Delay", "is given together with DueAt")
	}
	for _, given := range [...][2]string{{"ID", m.ID}, {"Key", m.Key}, {"DedupKey", m.DedupKey}} {
		if !utf8.ValidString(given[1]) {
			return wrong(given[0], "is not UTF-8")
		}
	}
	return cmp.Or(notNegative("Delay", m.Delay), notNegative("TTL", m.TTL), notNegative("DedupFor", m.DedupFor),
		notNegative("Spread", m.Spread), notNegative("DebounceMax", m.DebounceMax))
}

// encode is the message as JSON, with an id and the trace context of its push, which may be nil.
func (m *NewMessage) encode(trace http.Header) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	w := wireMessage{
		ID: m.ID, Key: m.Key, Delay: ms(m.Delay), DueAt: optional(m.DueAt), Past: m.Past, TTL: ms(m.TTL), Priority: m.Priority,
		MaxAttempts: attempts(m.MaxAttempts), DedupKey: m.DedupKey, DedupFor: ms(m.DedupFor), Spread: ms(m.Spread), Conflict: m.Conflict,
		DebounceMax: ms(m.DebounceMax), payloadFields: payloadOf(m.Payload), ContentType: m.ContentType, Meta: m.Meta,
		TraceParent: trace.Get("traceparent"), TraceState: trace.Get("tracestate"),
	}
	if w.ID == "" {
		w.ID = newULID()
	}
	data, err := json.Marshal(&w)
	if err != nil {
		return nil, fmt.Errorf("dwell: payload: %w", err)
	}
	return data, nil
}

// attempts is a number of attempts for a field that is absent if it is 0, and 0 without a limit.
func attempts(given int) *int {
	if given < 0 {
		return Ptr(0)
	}
	return optional(given)
}

// Ref names a message of a topic. Give the key that it was pushed with; without one dwell asks all partitions.
type Ref struct {
	ID, Key string
}

// Contents of a message.
type Contents struct {
	Payload     []byte            `json:"-"`
	Key         string            `json:"key,omitempty"`
	DedupKey    string            `json:"dedup_key,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	Priority    int               `json:"priority,omitempty"`
	PushedAt    time.Time         `json:"pushed_at"`
	TraceParent string            `json:"traceparent,omitempty"`
	TraceState  string            `json:"tracestate,omitempty"`
	// DeadLetterSource is where the message was a dead letter, if it was forwarded from there.
	DeadLetterSource *DeadLetterSource `json:"dead_letter_source,omitempty"`
	// Attributes are those with which an SQS client sent the message.
	Attributes map[string]Attribute `json:"attributes,omitempty"`
}

// JSON reads the payload as JSON.
func (c *Contents) JSON(value any) error { return json.Unmarshal(c.Payload, value) }

// String is the contents without the payload.
func (c Contents) String() string { return "Contents{" + c.inside() + "}" }

// GoString is the contents without the payload.
func (c Contents) GoString() string { return "dwell." + c.String() }

func (c *Contents) inside() string {
	return fmt.Sprintf("key: %q, payload: %d bytes", c.Key, len(c.Payload))
}

// Attribute is an attribute with which an SQS client sent a message.
type Attribute struct {
	// Type is "String", "Number" or "Binary", perhaps with a dot and a label of the client.
	Type  string `json:"type"`
	Value string `json:"value,omitempty"`
	// Bytes is the value if the type is "Binary".
	Bytes []byte `json:"value_base64,omitempty"`
}

// DeadLetterSource is where a message was a dead letter before it was forwarded.
type DeadLetterSource struct {
	Topic     string      `json:"topic"`
	Group     string      `json:"group"`
	ID        string      `json:"id"`
	Reason    DeathReason `json:"reason"`
	Attempts  int         `json:"attempts"`
	DiedAt    time.Time   `json:"died_at"`
	LastError *Failure    `json:"last_error,omitempty"`
	// Hops is how many topics have forwarded the message, from 1.
	Hops int `json:"hops"`
}

// Failure is why an attempt failed.
type Failure struct {
	// Class is the type of the error, if the consumer sent it.
	Class   string `json:"class,omitempty"`
	Message string `json:"message"`
	// Stack is where a panic arose, the innermost function first.
	Stack string `json:"stack,omitempty"`
}

// String is the class and the message, without the stack.
func (f Failure) String() string {
	if f.Class == "" {
		return f.Message
	}
	return f.Class + ": " + f.Message
}

// FailedAttempt is an attempt that failed.
type FailedAttempt struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
}

// Message is a message and its state in a group.
type Message struct {
	Contents
	ID        string       `json:"id"`
	State     MessageState `json:"state"`
	Partition int          `json:"partition"`
	Attempts  int          `json:"attempts"`
	// ETag names its due time and its attempts, for Reschedule. A message of a list has none.
	ETag  string    `json:"etag,omitempty"`
	DueAt time.Time `json:"due_at"`
	// NextAt is when it is tried next, only while it is scheduled, ready or in backoff.
	NextAt    time.Time `json:"next_at"`
	ExpiresAt time.Time `json:"expires_at"`
	DiedAt    time.Time `json:"died_at"`
	// MaxAttempts is the message's own limit, or nil; 0 is without one.
	MaxAttempts *int `json:"max_attempts,omitempty"`
	// Owner is the broker that has it, while it is blocked, in backoff or in flight.
	Owner string `json:"owner,omitempty"`
	// SuccessorDueAt is when the message that follows it is due: it is delivered once this one has ended.
	SuccessorDueAt time.Time `json:"successor_due_at"`
	// Reason is why it is dead.
	Reason DeathReason `json:"reason,omitempty"`
	// LastError is why the last attempt of a dead letter failed.
	LastError *Failure        `json:"last_error,omitempty"`
	History   []FailedAttempt `json:"history,omitempty"`
	// Unreadable is why the stored message cannot be read.
	Unreadable string `json:"unreadable,omitempty"`
	// Unforwarded is "hop_limit" for a dead letter that stays: eight topics have forwarded it.
	Unforwarded string `json:"unforwarded,omitempty"`
}

// UnmarshalJSON reads a message of an answer.
func (m *Message) UnmarshalJSON(data []byte) error {
	type fields Message
	return cmp.Or(json.Unmarshal(data, (*fields)(m)), readPayload(data, &m.Payload))
}

// String is the message without its payload.
func (m Message) String() string {
	parts := []string{fmt.Sprintf("id: %q", m.ID), m.Contents.inside(), fmt.Sprintf("state: %s, attempts: %d, due at: %s", m.State, m.Attempts, shown(m.DueAt))}
	return "Message{" + strings.Join(parts, ", ") + "}"
}

// GoString is the message without its payload.
func (m Message) GoString() string { return "dwell." + m.String() }
