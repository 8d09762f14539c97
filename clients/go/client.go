// Package dwell is a client of dwell, a delay broker: push messages with a delay, and handle them when they are due.
package dwell

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
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

// Timeout is for one request. Default 30 s. A push, cancel, reschedule or get waits no longer than RetryFor.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// RetryFor is for all repeats of a call, which then fails with ErrUnavailable. Default 5 s; 0 repeats nothing.
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
	o := options{tokenFile: os.Getenv("DWELL_TOKEN_FILE"), caFile: os.Getenv("DWELL_CA_FILE"), timeout: 30 * time.Second, retryFor: 5 * time.Second}
	for _, option := range opts {
		option(&o)
	}
	if o.timeout <= 0 {
		return nil, wrong("Timeout", fmt.Sprintf("is %v, and has to be above 0", o.timeout))
	}
	if err := notNegative("RetryFor", o.retryFor); err != nil {
		return nil, err
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

// PushResult says where a message is.
type PushResult struct {
	ID     string     `json:"id"`
	Status PushStatus `json:"status"`
	// Partition is 0, too, if the message was not accepted, or is buffered for a topic that the broker has not seen in Redis.
	Partition int       `json:"partition"`
	DueAt     time.Time `json:"due_at"`
	// Differs is true for a duplicate of a message with another payload or due time.
	Differs bool `json:"differs,omitempty"`
	// DuplicateOf is the id of the first message, for a duplicate by its dedup key.
	DuplicateOf string `json:"duplicate_of,omitempty"`
	// Replicas is how many replicas of Redis have it, where the broker is told to ask.
	Replicas     *int `json:"replicas,omitempty"`
	TopicCreated bool `json:"topic_created,omitempty"`
	// Error is why this message of a batch was not accepted.
	Error *Problem `json:"error,omitempty"`
}

// mayPass reports whether the same message may be accepted later.
func (r *PushResult) mayPass() bool { return r.Error != nil && r.Error.Type.mayPass() }

// failure is why the message was not accepted, as an error.
func (r *PushResult) failure(server string) error {
	if r.Error == nil {
		return nil
	}
	return &Error{Problem: *r.Error, Server: server, unavailable: r.mayPass()}
}

// Control is the outcome of a cancel or a reschedule.
type Control struct {
	ID        string        `json:"id"`
	Status    ControlStatus `json:"status"`
	Partition int           `json:"partition"`
	Groups    []GroupFate   `json:"groups"`
	DueAt     time.Time     `json:"due_at"`
	// Buffered: it waits on the broker's disk until the store is available.
	Buffered bool `json:"buffered,omitempty"`
}

// GroupFate is the outcome in one group.
type GroupFate struct {
	Group  string `json:"group"`
	Status Fate   `json:"status"`
}

// Push pushes one message. The message has an id before it is sent, so repeats store it once. The error matches ErrUnavailable if
// the outcome is unknown when RetryFor is over.
func (c *Client) Push(ctx context.Context, topic string, m NewMessage) (result PushResult, err error) {
	if err := named("topic", topic); err != nil {
		return result, err
	}
	body, err := m.encode(nil)
	if err != nil {
		return result, err
	}
	err = c.produce(ctx, call{method: http.MethodPost, path: pathOf(topic, "messages"), body: body, header: c.trace(ctx)}, &result)
	return result, err
}

// PushMany pushes messages in batches and repeats those that the broker could not store. It returns a result for each message, in
// order. The error is a ManyError if any was not accepted, and an Error if the broker refused a whole batch; the batches before it
// are stored.
func (c *Client) PushMany(ctx context.Context, topic string, messages []NewMessage) ([]PushResult, error) {
	if err := named("topic", topic); err != nil {
		return nil, err
	}
	encoded := make([][]byte, len(messages))
	for n := range messages {
		var err error
		if encoded[n], err = messages[n].encode(nil); err != nil {
			return nil, fmt.Errorf("message %d: %w", n, err)
		}
	}
	header := c.trace(ctx)
	results := make([]PushResult, 0, len(messages))
	for len(encoded) > 0 {
		count, size := 0, 0
		for count < min(len(encoded), batchMessages) && (count == 0 || size+len(encoded[count]) < batchBytes) {
			size += len(encoded[count]) + 1
			count++
		}
		pushed, err := c.pushBatch(ctx, topic, encoded[:count], header)
		results = append(results, pushed...)
		if err != nil {
			return results, err
		}
		encoded = encoded[count:]
	}
	var failed many
	for n := range results {
		failed.add(results[n].failure(c.transport.server))
	}
	return results, failed.error()
}

// pushBatch pushes one batch, and again those that may be accepted later.
func (c *Client) pushBatch(ctx context.Context, topic string, batch [][]byte, header http.Header) ([]PushResult, error) {
	results := make([]PushResult, len(batch))
	left := make([]int, len(batch))
	for n := range batch {
		left[n] = n
	}
	until := time.Now().Add(c.transport.retryFor)
	for tries := 0; ; tries++ {
		messages := make([][]byte, len(left))
		for at, n := range left {
			messages[at] = batch[n]
		}
		answer, err := c.sendBatch(ctx, topic, messages, header, c.transport.retryFor)
		if err != nil {
			return nil, err
		}
		var again []int
		for at, result := range answer {
			results[left[at]] = result
			if result.mayPass() {
				again = append(again, left[at])
			}
		}
		left = again
		wait := backoff(tries, 50*time.Millisecond, 2*time.Second)
		if len(left) == 0 || time.Now().Add(wait).After(until) {
			return results, nil
		}
		if err := sleep(ctx, wait); err != nil {
			return results, c.transport.ended(ctx, nil)
		}
	}
}

// sendBatch sends one batch, and returns a result for each message.
func (c *Client) sendBatch(ctx context.Context, topic string, batch [][]byte, header http.Header, retryFor time.Duration) ([]PushResult, error) {
	var body bytes.Buffer
	body.WriteString(`{"messages":[`)
	body.Write(bytes.Join(batch, []byte{','}))
	body.WriteString(`]}`)
	var answer struct {
		Results []PushResult `json:"results"`
	}
	request := call{method: http.MethodPost, path: pathOf(topic, "messages", "batch"), body: body.Bytes(), header: header}
	request.timeout, request.retryFor, request.isWithin = c.transport.timeout, retryFor, true
	if err := c.transport.do(ctx, request, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(batch) {
		cause := fmt.Errorf("the answer has %d results for %d messages", len(answer.Results), len(batch))
		return nil, &Error{Server: c.transport.server, Cause: cause, unavailable: true}
	}
	return answer.Results, nil
}

// Cancel cancels a message in every group in which it waits. The error matches ErrConflict if a consumer has it.
func (c *Client) Cancel(ctx context.Context, topic string, m Ref) (result Control, err error) {
	path, err := messagePath(topic, m, "")
	if err != nil {
		return result, err
	}
	err = c.produce(ctx, call{method: http.MethodDelete, path: path}, &result)
	return result, err
}

// Reschedule is a new due time: exactly one of Delay, DueAt and Now.
type Reschedule struct {
	// Delay is from now.
	Delay time.Duration
	DueAt time.Time
	// Now makes the message due at once.
	Now bool
	// Past says what happens if DueAt is in the past. Default PastReject.
	Past Past
	// ETag is what the message has to have still, if given.
	ETag string
}

// Reschedule gives a message that waits another due time.
func (c *Client) Reschedule(ctx context.Context, topic string, m Ref, r Reschedule) (result Control, err error) {
	path, err := messagePath(topic, m, "")
	if err != nil {
		return result, err
	}
	body, err := r.encode()
	if err != nil {
		return result, err
	}
	header := http.Header{}
	if r.ETag != "" {
		header.Set("If-Match", r.ETag)
	}
	err = c.produce(ctx, call{method: http.MethodPatch, path: path, body: body, header: header}, &result)
	return result, err
}

func (r *Reschedule) encode() ([]byte, error) {
	given := 0
	for _, is := range []bool{r.Delay != 0, !r.DueAt.IsZero(), r.Now} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, wrong("Reschedule", "has to have exactly one of Delay, DueAt and Now")
	}
	if err := notNegative("Delay", r.Delay); err != nil {
		return nil, err
	}
	fields := struct {
		Delay *millis    `json:"delay_ms,omitempty"`
		DueAt *time.Time `json:"due_at,omitempty"`
		Past  Past       `json:"past,omitempty"`
	}{DueAt: optional(r.DueAt), Past: r.Past}
	if r.DueAt.IsZero() {
		fields.Delay = Ptr(millis(r.Delay))
	}
	return json.Marshal(fields)
}

// produce makes a call of a producer, which ends with RetryFor.
func (c *Client) produce(ctx context.Context, request call, result any) error {
	request.timeout, request.retryFor, request.isWithin = c.transport.timeout, c.transport.retryFor, true
	return c.transport.do(ctx, request, result)
}

// administer makes a call that may take as long as Timeout.
func (c *Client) administer(ctx context.Context, request call, body, result any) error {
	if body != nil {
		var err error
		if request.body, err = json.Marshal(body); err != nil {
			return fmt.Errorf("dwell: %w", err)
		}
	}
	request.timeout, request.retryFor = c.transport.timeout, c.transport.retryFor
	return c.transport.do(ctx, request, result)
}

func (c *Client) trace(ctx context.Context) http.Header {
	header := http.Header{}
	if c.inject == nil {
		return header
	}
	carrier := http.Header{}
	c.inject(ctx, carrier)
	for _, name := range []string{"traceparent", "tracestate"} {
		if value := carrier.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

func messagePath(topic string, m Ref, group string) (string, error) {
	if err := named("topic", topic, "ID", m.ID); err != nil {
		return "", err
	}
	return withQuery(pathOf(topic, "messages", m.ID), url.Values{"key": {m.Key}, "group": {group}}), nil
}

// many counts what failed of many.
type many struct{ ManyError }

func (m *many) add(err error) {
	m.Total++
	if err == nil {
		return
	}
	m.Failed++
	if m.First == nil {
		m.First = err
	}
}

func (m *many) error() error {
	if m.First == nil {
		return nil
	}
	return &m.ManyError
}
