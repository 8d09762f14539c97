// Package dwell is a client of dwell, a delay broker: push messages with a delay, and handle them when they are due.
package dwell

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Version of this client.
const Version = "0.1.0"

// A batch has up to 1,000 messages and 8 MiB.
const (
	batchMessages = 1000
	batchBytes    = 7 << 20
)

// Client of one broker, or of several behind one address. It may be used by many goroutines.
type Client struct {
	transport *transport
	inject    func(context.Context, http.Header)
}

// Option of a client.
type Option func(*options)

type options struct {
	tokenFile, caFile string
	timeout, retryFor time.Duration
	inject            func(context.Context, http.Header)
}

// TokenFile names the file of the token, which is read again when it changes. Default: DWELL_TOKEN_FILE.
func TokenFile(path string) Option { return func(o *options) { o.tokenFile = path } }

// CAFile names CA certificates that verify the broker. Default: DWELL_CA_FILE, and else those of the system.
func CAFile(path string) Option { return func(o *options) { o.caFile = path } }

// Timeout is for one request. Default 30 s.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// RetryFor is for all repeats of a call. Default 60 s.
func RetryFor(d time.Duration) Option { return func(o *options) { o.retryFor = d } }

// Inject writes the trace context of each push. With OpenTelemetry:
//
//	dwell.Inject(func(ctx context.Context, h http.Header) {
//		otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(h))
//	})
func Inject(inject func(context.Context, http.Header)) Option {
	return func(o *options) { o.inject = inject }
}

// New creates a client. The server is http://HOST:PORT, https://HOST:PORT or unix:/PATH; "" is DWELL_SERVER, and else
// http://127.0.0.1:7373.
func New(server string, opts ...Option) (*Client, error) {
	o := options{tokenFile: os.Getenv("DWELL_TOKEN_FILE"), caFile: os.Getenv("DWELL_CA_FILE"), timeout: 30 * time.Second, retryFor: time.Minute}
	for _, option := range opts {
		option(&o)
	}
	t, err := newTransport(cmp.Or(server, os.Getenv("DWELL_SERVER"), "http://127.0.0.1:7373"), o.caFile)
	if err != nil {
		return nil, err
	}
	t.token.file, t.timeout, t.retryFor = o.tokenFile, o.timeout, o.retryFor
	return &Client{t, o.inject}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.client.CloseIdleConnections() }

// NewMessage is a message to push. Give at most one of Delay and DueAt.
type NewMessage struct {
	// Payload is []byte, string, or any other value, which is sent as JSON.
	Payload any
	// ID makes the push repeatable. Default: a new ULID.
	ID string
	// Key decides the partition; without a key the id does.
	Key   string
	Delay time.Duration
	DueAt time.Time
	// Past says what happens if DueAt is in the past: "now" or "reject". Default "now".
	Past     string
	TTL      time.Duration
	Priority int
	// MaxAttempts is -1 without a limit. Default: the topic's.
	MaxAttempts int
	// DedupKey makes another push of it to the partition within DedupFor a duplicate.
	DedupKey string
	DedupFor time.Duration
	// Conflict is "keep", "reject", "replace" or "debounce". Default "keep".
	Conflict    string
	ContentType string
	Meta        map[string]string
}

func (m NewMessage) encode() ([]byte, error) {
	fields := map[string]any{"id": cmp.Or(m.ID, newULID())}
	switch payload := m.Payload.(type) {
	case []byte:
		fields["payload_base64"] = payload
		if payload == nil {
			fields["payload_base64"] = ""
		}
	case string:
		fields["payload"] = payload
	default:
		fields["payload_json"] = payload
	}
	for name, text := range map[string]string{"key": m.Key, "past": m.Past, "conflict": m.Conflict, "content_type": m.ContentType, "dedup_key": m.DedupKey} {
		if text != "" {
			fields[name] = text
		}
	}
	for name, number := range map[string]int64{
		"delay_ms": milliseconds(m.Delay), "ttl_ms": milliseconds(m.TTL), "dedup_for_ms": milliseconds(m.DedupFor), "priority": int64(m.Priority), "max_attempts": int64(m.MaxAttempts),
	} {
		if number != 0 {
			fields[name] = number
		}
	}
	if m.MaxAttempts < 0 {
		fields["max_attempts"] = 0
	}
	if !m.DueAt.IsZero() {
		fields["due_at"] = m.DueAt
	}
	if m.Meta != nil {
		fields["meta"] = m.Meta
	}
	return json.Marshal(fields)
}

// milliseconds rounds up, so that nothing is due early.
func milliseconds(d time.Duration) int64 {
	if d > 0 {
		d += time.Millisecond - 1
	}
	return int64(d / time.Millisecond)
}

// PushResult says where a message is.
type PushResult struct {
	ID string `json:"id"`
	// Status is "stored", "journaled", "buffered", "duplicate", "replaced", "debounced" or "error".
	Status    string    `json:"status"`
	Partition int       `json:"partition"`
	DueAt     time.Time `json:"due_at"`
	// Differs is true for a duplicate of a message with another payload or due time.
	Differs bool `json:"differs,omitempty"`
	// DuplicateOf is the id of the first message, for a duplicate by its dedup key.
	DuplicateOf  string   `json:"duplicate_of,omitempty"`
	Replicas     *int     `json:"replicas,omitempty"`
	TopicCreated bool     `json:"topic_created,omitempty"`
	Error        *Problem `json:"error,omitempty"`
}

// Problem is why a message of a batch was not accepted.
type Problem struct {
	Type   string `json:"type"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (p *Problem) mayPass() bool {
	switch strings.TrimPrefix(p.Type, "urn:dwell:error:") {
	case "full", "unavailable", "outcome-unknown":
		return true
	}
	return false
}

// PushManyError says that some messages of a PushMany were not accepted.
type PushManyError struct {
	// Err is the first error.
	Err *Error
	// Results has one result for each message, in order.
	Results []PushResult
}

func (e *PushManyError) Error() string { return e.Err.Error() }

// Unwrap returns the first error.
func (e *PushManyError) Unwrap() error { return e.Err }

// Control is the outcome of a cancel or a reschedule.
type Control struct {
	ID string `json:"id"`
	// Status is "cancelled", "rescheduled" or "partly".
	Status    string      `json:"status"`
	Partition int         `json:"partition"`
	Groups    []GroupFate `json:"groups"`
	DueAt     time.Time   `json:"due_at"`
	Buffered  bool        `json:"buffered,omitempty"`
}

// GroupFate is the outcome in one group.
type GroupFate struct {
	Group  string `json:"group"`
	Status string `json:"status"`
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
	Topic string `json:"topic"`
	Group string `json:"group"`
	ID    string `json:"id"`
	// Reason is "max_attempts" or "buried".
	Reason    string    `json:"reason"`
	Attempts  int       `json:"attempts"`
	DiedAt    time.Time `json:"died_at"`
	LastError string    `json:"last_error,omitempty"`
	// Hops is how many topics have forwarded the message, from 1.
	Hops int `json:"hops"`
}

// JSON reads the payload as JSON.
func (c *Contents) JSON(value any) error { return json.Unmarshal(c.Payload, value) }

// payload is the payload in an answer.
type payload struct {
	Text   *string `json:"payload"`
	Base64 []byte  `json:"payload_base64"`
}

func (p payload) bytes() []byte {
	if p.Text != nil {
		return []byte(*p.Text)
	}
	return p.Base64
}

// Message is a message and its state in a group.
type Message struct {
	Contents
	ID string `json:"id"`
	// State is "scheduled", "ready", "blocked", "backoff", "in_flight" or "dead".
	State       string          `json:"state"`
	Partition   int             `json:"partition"`
	Attempts    int             `json:"attempts"`
	ETag        string          `json:"etag"`
	DueAt       time.Time       `json:"due_at"`
	NextAt      time.Time       `json:"next_at"`
	ExpiresAt   time.Time       `json:"expires_at"`
	DiedAt      time.Time       `json:"died_at"`
	MaxAttempts int             `json:"max_attempts"`
	Owner       string          `json:"owner"`
	Reason      string          `json:"reason"`
	LastError   string          `json:"last_error"`
	History     []FailedAttempt `json:"history"`
	Unreadable  string          `json:"unreadable"`
}

// FailedAttempt is an attempt that failed.
type FailedAttempt struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Reason  string    `json:"reason"`
}

// CreateTopic creates a topic, or changes the given settings of it, such as "max_attempts". Repeating it changes nothing.
func (c *Client) CreateTopic(ctx context.Context, topic string, settings map[string]any) error {
	var result struct{}
	return c.call(ctx, http.MethodPut, "/v1/topics/"+url.PathEscape(topic), settings, nil, &result)
}

// Push pushes one message. The message has an id before it is sent, so repeats store it once. The error matches ErrUnavailable if
// the outcome is unknown when RetryFor is over.
func (c *Client) Push(ctx context.Context, topic string, m NewMessage) (result PushResult, err error) {
	body, err := m.encode()
	if err != nil {
		return result, fmt.Errorf("dwell: payload: %w", err)
	}
	err = c.call(ctx, http.MethodPost, "/v1/topics/"+url.PathEscape(topic)+"/messages", json.RawMessage(body), c.trace(ctx), &result)
	return result, err
}

// PushMany pushes messages in batches and repeats those that the broker could not store. It returns a result for each message, in
// order. The error is a PushManyError if any was not accepted, and an Error if the broker refused a whole batch; the batches
// before it are stored.
func (c *Client) PushMany(ctx context.Context, topic string, messages []NewMessage) ([]PushResult, error) {
	path := "/v1/topics/" + url.PathEscape(topic) + "/messages/batch"
	header := c.trace(ctx)
	var results []PushResult
	var batch []json.RawMessage
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		pushed, err := c.pushBatch(ctx, path, batch, header)
		results, batch, size = append(results, pushed...), nil, 0
		return err
	}
	for _, m := range messages {
		body, err := m.encode()
		if err != nil {
			return results, fmt.Errorf("dwell: payload: %w", err)
		}
		if len(batch) == batchMessages || size+len(body) > batchBytes {
			if err := flush(); err != nil {
				return results, err
			}
		}
		batch, size = append(batch, body), size+len(body)+1
	}
	if err := flush(); err != nil {
		return results, err
	}
	failed, first := 0, (*Problem)(nil)
	for _, result := range results {
		if result.Error != nil {
			failed, first = failed+1, cmp.Or(first, result.Error)
		}
	}
	if first != nil {
		detail := fmt.Sprintf("%d of %d messages were not accepted, the first with: %s", failed, len(results), first.Detail)
		refused := &Error{Status: first.Status, Type: strings.TrimPrefix(first.Type, "urn:dwell:error:"), Detail: detail, unavailable: first.mayPass()}
		return results, &PushManyError{refused, results}
	}
	return results, nil
}

func (c *Client) pushBatch(ctx context.Context, path string, batch []json.RawMessage, header http.Header) ([]PushResult, error) {
	results := make([]PushResult, len(batch))
	left := make([]int, len(batch))
	for n := range batch {
		left[n] = n
	}
	until := time.Now().Add(c.transport.retryFor)
	for tries := 0; ; tries++ {
		messages := make([]json.RawMessage, len(left))
		for at, n := range left {
			messages[at] = batch[n]
		}
		var answer struct {
			Results []PushResult `json:"results"`
		}
		if err := c.call(ctx, http.MethodPost, path, map[string]any{"messages": messages}, header, &answer); err != nil {
			return nil, err
		}
		var again []int
		for at, result := range answer.Results {
			results[left[at]] = result
			if result.Error != nil && result.Error.mayPass() {
				again = append(again, left[at])
			}
		}
		left = again
		wait := backoff(tries, 50*time.Millisecond, 2*time.Second)
		if len(left) == 0 || time.Now().Add(wait).After(until) {
			return results, nil
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// Cancel cancels a message in every group in which it waits. Give the key that it was pushed with, or "". The type of the error is
// "conflict" if a consumer has it.
func (c *Client) Cancel(ctx context.Context, topic, id, key string) (result Control, err error) {
	err = c.call(ctx, http.MethodDelete, messagePath(topic, id, url.Values{"key": {key}}), nil, nil, &result)
	return result, err
}

// Reschedule is a new due time: Delay from now, or DueAt if it is given.
type Reschedule struct {
	Key   string
	Delay time.Duration
	DueAt time.Time
	Past  string
	// ETag is what the message has to have still, if given.
	ETag string
}

// Reschedule gives a message that waits another due time.
func (c *Client) Reschedule(ctx context.Context, topic, id string, r Reschedule) (result Control, err error) {
	body := map[string]any{}
	if r.DueAt.IsZero() {
		body["delay_ms"] = milliseconds(r.Delay)
	} else {
		body["due_at"] = r.DueAt
	}
	if r.Past != "" {
		body["past"] = r.Past
	}
	header := http.Header{}
	if r.ETag != "" {
		header.Set("If-Match", r.ETag)
	}
	err = c.call(ctx, http.MethodPatch, messagePath(topic, id, url.Values{"key": {r.Key}}), body, header, &result)
	return result, err
}

// Get gets a message with its state in a group. Give the key that it was pushed with, or ""; "" is the group "default".
func (c *Client) Get(ctx context.Context, topic, id, key, group string) (Message, error) {
	var result struct {
		Message
		payload
	}
	err := c.call(ctx, http.MethodGet, messagePath(topic, id, url.Values{"key": {key}, "group": {group}}), nil, nil, &result)
	result.Message.Payload = result.payload.bytes()
	return result.Message, err
}

func (c *Client) call(ctx context.Context, method, path string, body any, header http.Header, result any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return fmt.Errorf("dwell: %w", err)
		}
	}
	request := call{method: method, path: path, body: data, header: header, timeout: c.transport.timeout, retryFor: c.transport.retryFor}
	return c.transport.do(ctx, request, result)
}

func (c *Client) trace(ctx context.Context) http.Header {
	carrier, header := http.Header{}, http.Header{}
	if c.inject != nil {
		c.inject(ctx, carrier)
	}
	for _, name := range []string{"traceparent", "tracestate"} {
		if value := carrier.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

func messagePath(topic, id string, query url.Values) string {
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	path := "/v1/topics/" + url.PathEscape(topic) + "/messages/" + url.PathEscape(id)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// newULID makes a ULID: sortable by time, unique.
func newULID() string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var random [16]byte
	_, _ = rand.Read(random[:])
	text := make([]byte, 26)
	for n, ms := 9, time.Now().UnixMilli(); n >= 0; n, ms = n-1, ms>>5 {
		text[n] = alphabet[ms&31]
	}
	for n := range random {
		text[10+n] = alphabet[random[n]&31]
	}
	return string(text)
}
