package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// TopicSettings are settings of a topic. A field that is nil stays unchanged, or has its default in a new topic. Use Ptr for values:
//
//	dwell.TopicSettings{MaxAttempts: dwell.Ptr(5)}
type TopicSettings struct {
	// Partitions is 1 to 1,024, and cannot be changed later. Default 8.
	Partitions *int
	// VisibilityTimeout is how long a consumer has to settle a delivery, 100 ms to 12 h. Default 30 s.
	VisibilityTimeout *time.Duration
	// MaxAttempts is how many attempts a message has before it is dead; 0 is without a limit. Default 16.
	MaxAttempts *int
	// Backoff is the delay between attempts. Default: exponential, from 1 s to 10 min.
	Backoff *Backoff
	// DedupWindow is how long after an ack a push with the same id is still a duplicate. Default 0.
	DedupWindow *time.Duration
	// Ordering cannot be changed later. Default OrderingNone.
	Ordering *Ordering
	// TTL is how long after its due time a message is still delivered; 0 is without an end. Default 0.
	TTL *time.Duration
	// OnExpiry is what happens to a message that expires. Default ExpiryDrop.
	OnExpiry *Expiry
	// DeadMaxAge is how long dead letters are kept; 0 is without an end. Default 0.
	DeadMaxAge *time.Duration
	// DeadMaxCount is how many dead letters a group keeps in each partition; 0 is all. Default 0.
	DeadMaxCount *int64
	// DeadLetterTopic is the topic to which dead letters move; empty for none. Default: they stay.
	DeadLetterTopic *string
	// Annotations are texts about the topic, which dwell does not read. Those that are absent stay; an empty text removes one.
	Annotations map[string]string
}

// Backoff is the delay between attempts.
type Backoff struct {
	Kind BackoffKind
	// Initial and Max are the first and the longest delay, and Factor is from one to the next, of BackoffExponential.
	Initial, Max time.Duration
	Factor       float64
	// Jitter is by which fraction a delay is randomly shortened at most, of BackoffExponential.
	Jitter float64
	// Steps are the delays of BackoffLadder; the last one repeats.
	Steps []time.Duration
}

// Ladder is a backoff with these delays: before the second, the third, … attempt. The last one repeats.
func Ladder(steps ...time.Duration) *Backoff { return &Backoff{Kind: BackoffLadder, Steps: steps} }

// Exponential is a backoff whose delays double from initial to most, each up to a fifth shorter.
func Exponential(initial, most time.Duration) *Backoff {
	return &Backoff{Kind: BackoffExponential, Initial: initial, Max: most, Factor: 2, Jitter: 0.2}
}

type wireBackoff struct {
	Kind    BackoffKind `json:"kind"`
	Initial *millis     `json:"initial_ms,omitempty"`
	Max     *millis     `json:"max_ms,omitempty"`
	Factor  *float64    `json:"factor,omitempty"`
	Jitter  *float64    `json:"jitter,omitempty"`
	Steps   []millis    `json:"steps_ms,omitempty"`
}

// MarshalJSON writes the backoff as the broker reads it.
func (b Backoff) MarshalJSON() ([]byte, error) {
	w := wireBackoff{Kind: b.Kind}
	if b.Kind == BackoffLadder {
		for _, step := range b.Steps {
			w.Steps = append(w.Steps, millis(step))
		}
	} else {
		w.Initial, w.Max, w.Factor, w.Jitter = Ptr(millis(b.Initial)), Ptr(millis(b.Max)), &b.Factor, &b.Jitter
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the backoff of an answer.
func (b *Backoff) UnmarshalJSON(data []byte) error {
	var w wireBackoff
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*b = Backoff{Kind: w.Kind, Initial: time.Duration(value(w.Initial)), Max: time.Duration(value(w.Max)), Factor: value(w.Factor), Jitter: value(w.Jitter)}
	for _, step := range w.Steps {
		b.Steps = append(b.Steps, time.Duration(step))
	}
	return nil
}

// value is what a pointer points to, or the zero value.
func value[T any](pointer *T) (result T) {
	if pointer != nil {
		result = *pointer
	}
	return result
}

type wireDeadLetter struct {
	Topic string `json:"topic"`
}

type wireSettings struct {
	Partitions        *int              `json:"partitions,omitempty"`
	VisibilityTimeout *millis           `json:"visibility_timeout_ms,omitempty"`
	MaxAttempts       *int              `json:"max_attempts,omitempty"`
	Backoff           *Backoff          `json:"backoff,omitempty"`
	DedupWindow       *millis           `json:"dedup_window_ms,omitempty"`
	Ordering          *Ordering         `json:"ordering,omitempty"`
	TTL               *millis           `json:"ttl_ms,omitempty"`
	OnExpiry          *Expiry           `json:"on_expiry,omitempty"`
	DeadMaxAge        *millis           `json:"dead_max_age_ms,omitempty"`
	DeadMaxCount      *int64            `json:"dead_max_count,omitempty"`
	DeadLetter        *wireDeadLetter   `json:"dead_letter,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

// MarshalJSON writes the settings as the broker reads them.
func (s TopicSettings) MarshalJSON() ([]byte, error) {
	w := wireSettings{
		Partitions: s.Partitions, VisibilityTimeout: (*millis)(s.VisibilityTimeout), MaxAttempts: s.MaxAttempts, Backoff: s.Backoff,
		DedupWindow: (*millis)(s.DedupWindow), Ordering: s.Ordering, TTL: (*millis)(s.TTL), OnExpiry: s.OnExpiry,
		DeadMaxAge: (*millis)(s.DeadMaxAge), DeadMaxCount: s.DeadMaxCount, Annotations: s.Annotations,
	}
	if s.DeadLetterTopic != nil {
		w.DeadLetter = &wireDeadLetter{*s.DeadLetterTopic}
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the settings of an answer.
func (s *TopicSettings) UnmarshalJSON(data []byte) error {
	var w wireSettings
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*s = TopicSettings{
		Partitions: w.Partitions, VisibilityTimeout: (*time.Duration)(w.VisibilityTimeout), MaxAttempts: w.MaxAttempts, Backoff: w.Backoff,
		DedupWindow: (*time.Duration)(w.DedupWindow), Ordering: w.Ordering, TTL: (*time.Duration)(w.TTL), OnExpiry: w.OnExpiry,
		DeadMaxAge: (*time.Duration)(w.DeadMaxAge), DeadMaxCount: w.DeadMaxCount, Annotations: w.Annotations,
	}
	if w.DeadLetter != nil {
		s.DeadLetterTopic = &w.DeadLetter.Topic
	}
	return nil
}

func (s *TopicSettings) check() error {
	for argument, d := range map[string]*time.Duration{
		"VisibilityTimeout": s.VisibilityTimeout, "DedupWindow": s.DedupWindow, "TTL": s.TTL, "DeadMaxAge": s.DeadMaxAge,
	} {
		if err := notNegative(argument, value(d)); err != nil {
			return err
		}
	}
	if s.Partitions != nil && *s.Partitions < 1 {
		return wrong("Partitions", fmt.Sprintf("is %d, and has to be at least 1", *s.Partitions))
	}
	if s.MaxAttempts != nil && *s.MaxAttempts < 0 {
		return wrong("MaxAttempts", "is negative; 0 is without a limit")
	}
	if s.Backoff == nil {
		return nil
	}
	for _, step := range append([]time.Duration{s.Backoff.Initial, s.Backoff.Max}, s.Backoff.Steps...) {
		if err := notNegative("Backoff", step); err != nil {
			return err
		}
	}
	return nil
}

// Topic is a topic and its settings.
type Topic struct {
	Topic    string        `json:"topic"`
	Groups   []string      `json:"groups"`
	Settings TopicSettings `json:"settings"`
	// ETag names this version of the topic, for IfMatch.
	ETag string `json:"-"`
}

// TopicDescription is a topic and what is in it.
type TopicDescription struct {
	Topic
	// Totals has one entry for each group, and Partitions one for each partition and group.
	Totals     []GroupTotals    `json:"totals"`
	Partitions []PartitionState `json:"partitions"`
}

// Counts are messages of a group by state.
type Counts struct {
	Scheduled int64 `json:"scheduled"`
	Ready     int64 `json:"ready"`
	Blocked   int64 `json:"blocked"`
	Backoff   int64 `json:"backoff"`
	InFlight  int64 `json:"in_flight"`
	Dead      int64 `json:"dead"`
	// OldestReadyAge is how long the oldest message that is ready or blocked has been due.
	OldestReadyAge time.Duration `json:"-"`
}

// UnmarshalJSON reads the counts of an answer.
func (c *Counts) UnmarshalJSON(data []byte) error {
	type fields Counts
	var age struct {
		Age millis `json:"oldest_ready_age_ms"`
	}
	err := cmp.Or(json.Unmarshal(data, (*fields)(c)), json.Unmarshal(data, &age))
	c.OldestReadyAge = time.Duration(age.Age)
	return err
}

// GroupTotals are the messages of a group in all partitions.
type GroupTotals struct {
	Group string
	State GroupState
	Counts
}

// UnmarshalJSON reads the totals of an answer.
func (t *GroupTotals) UnmarshalJSON(data []byte) error {
	var fields struct {
		Group string     `json:"group"`
		State GroupState `json:"state"`
	}
	err := cmp.Or(json.Unmarshal(data, &fields), json.Unmarshal(data, &t.Counts))
	t.Group, t.State = fields.Group, fields.State
	return err
}

// PartitionState are the messages of a group in one partition.
type PartitionState struct {
	Partition int
	Group     string
	Counts
	// NextDueAt is the earliest due time of what is scheduled or ready.
	NextDueAt time.Time
	// Owner is the broker that owns the partition.
	Owner string
}

// UnmarshalJSON reads the state of an answer.
func (s *PartitionState) UnmarshalJSON(data []byte) error {
	var fields struct {
		Partition int       `json:"partition"`
		Group     string    `json:"group"`
		NextDueAt time.Time `json:"next_due_at"`
		Owner     string    `json:"owner"`
	}
	err := cmp.Or(json.Unmarshal(data, &fields), json.Unmarshal(data, &s.Counts))
	s.Partition, s.Group, s.NextDueAt, s.Owner = fields.Partition, fields.Group, fields.NextDueAt, fields.Owner
	return err
}

// TopicOption is an option of CreateTopic and DeleteTopic.
type TopicOption func(http.Header)

// IfMatch does it only while the topic has this ETag; "*" is any topic that exists. The error matches ErrPreconditionFailed.
func IfMatch(etag string) TopicOption {
	return func(header http.Header) { header.Set("If-Match", etag) }
}

func topicHeader(opts []TopicOption) http.Header {
	header := http.Header{}
	for _, option := range opts {
		option(header)
	}
	return header
}

// CreateTopic creates a topic, or changes those of its settings that are given. Repeating it changes nothing.
func (c *Client) CreateTopic(ctx context.Context, topic string, settings TopicSettings, opts ...TopicOption) (result Topic, err error) {
	if err := cmp.Or(named("topic", topic), settings.check()); err != nil {
		return result, err
	}
	request := call{method: http.MethodPut, path: pathOf(topic), header: topicHeader(opts), etag: &result.ETag}
	err = c.administer(ctx, request, settings, &result)
	return result, err
}

// Topic gets a topic with its settings and counts.
func (c *Client) Topic(ctx context.Context, topic string) (result TopicDescription, err error) {
	if err := named("topic", topic); err != nil {
		return result, err
	}
	err = c.administer(ctx, call{method: http.MethodGet, path: pathOf(topic), etag: &result.ETag}, nil, &result)
	return result, err
}

// Topics lists the names of all topics. An error ends the list.
func (c *Client) Topics(ctx context.Context) iter.Seq2[string, error] {
	var page struct {
		Topics []string `json:"topics"`
		cursor
	}
	return pages(c, ctx, nil, pathOf(), url.Values{}, &page, &page.Topics, &page.cursor)
}

// DeleteTopic deletes a topic with all its messages.
func (c *Client) DeleteTopic(ctx context.Context, topic string, opts ...TopicOption) error {
	if err := named("topic", topic); err != nil {
		return err
	}
	return c.administer(ctx, call{method: http.MethodDelete, path: pathOf(topic), header: topicHeader(opts)}, nil, nil)
}

// Move is where the messages of a topic go.
type Move struct {
	// To is the other topic, which is created if it does not exist.
	To string
	// Partitions is its number of partitions. Default: that of this topic, or of the other one if it is there.
	Partitions int
	// OnProgress is called with the sums after each request, which takes some seconds.
	OnProgress func(Moved)
}

// Moved is what a move did.
type Moved struct {
	Moved int64 `json:"moved"`
	Dead  int64 `json:"dead"`
	// Duplicates are messages whose id the other topic has; they are dropped.
	Duplicates int64 `json:"duplicates"`
	// InFlight is how many messages consumers have still: the move waits for them.
	InFlight int64 `json:"in_flight"`
	// Done: nothing is left.
	Done bool `json:"done"`
}

// Move moves the messages of a topic to another topic, until nothing is left or the context ends. With an error it returns what
// was moved before.
func (c *Client) Move(ctx context.Context, topic string, move Move) (sum Moved, err error) {
	if err := named("topic", topic, "To", move.To); err != nil {
		return sum, err
	}
	body := struct {
		To         string `json:"to"`
		Partitions int    `json:"partitions,omitempty"`
	}{move.To, move.Partitions}
	for {
		var page Moved
		if err := c.administer(ctx, call{method: http.MethodPost, path: pathOf(topic, "move")}, body, &page); err != nil {
			return sum, err
		}
		sum.Moved, sum.Dead, sum.Duplicates = sum.Moved+page.Moved, sum.Dead+page.Dead, sum.Duplicates+page.Duplicates
		sum.InFlight, sum.Done = page.InFlight, page.Done
		if move.OnProgress != nil {
			move.OnProgress(sum)
		}
		if page.Done {
			return sum, nil
		}
		if page.Moved+page.Dead == 0 {
			// Only what consumers have is left.
			if err := sleep(ctx, 200*time.Millisecond); err != nil {
				return sum, c.transport.ended(ctx, nil)
			}
		}
	}
}
