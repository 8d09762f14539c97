package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Longest reason that is sent; the broker cuts longer ones.
const longestReason = 1000

// ErrLost is the cause of the end of a handler's context when another consumer may have the message.
var ErrLost = errors.New("dwell: the delivery is lost")

// ErrStopped is the cause of the end of a handler's context when the worker stops and the time to drain is over.
var ErrStopped = errors.New("dwell: the worker stopped")

type retryError struct {
	after  time.Duration
	reason string
}

func (e *retryError) Error() string { return cmp.Or(e.reason, "retry") }

// Retry is the error of a handler that wants the message again after this time, and not after the backoff of its topic.
func Retry(after time.Duration, reason ...string) error {
	e := &retryError{after: after}
	if len(reason) > 0 {
		e.reason = reason[0]
	}
	return e
}

type buryError struct{ reason string }

func (e *buryError) Error() string { return e.reason }

// Bury is the error of a handler whose message can never succeed: it becomes a dead letter.
func Bury(reason string) error { return &buryError{reason} }

// Delivery is a message that was handed to a worker.
type Delivery struct {
	Contents
	ID        string    `json:"id"`
	Receipt   string    `json:"receipt"`
	Attempt   int       `json:"attempt"`
	Partition int       `json:"partition"`
	DueAt     time.Time `json:"due_at"`
	Deadline  time.Time `json:"deadline"`
	// LatenessMS is the time from due to the hand-over, in milliseconds.
	LatenessMS int64 `json:"lateness_ms"`
	extend     func(context.Context, time.Duration) bool
}

// Extend moves the deadline to this time from now. It reports whether the delivery still belongs to this worker.
func (d *Delivery) Extend(ctx context.Context, visibility time.Duration) bool {
	return d.extend(ctx, visibility)
}

// Handler does the work of a delivery. Returning nil acknowledges the message. An error delivers it again after the backoff of the
// topic, Retry after the given time, and Bury makes it a dead letter. The context ends once another consumer may have the
// message, and then nothing is settled.
type Handler func(ctx context.Context, d *Delivery) error

// Stats are counters since the start, and the state now.
type Stats struct {
	Delivered      int       `json:"delivered"`
	Acked          int       `json:"acked"`
	Nacked         int       `json:"nacked"`
	Buried         int       `json:"buried"`
	Extended       int       `json:"extended"`
	Stale          int       `json:"stale"`
	Lost           int       `json:"lost"`
	PollFailures   int       `json:"poll_failures"`
	SettleFailures int       `json:"settle_failures"`
	InFlight       int       `json:"in_flight"`
	LatenessMS     int64     `json:"lateness_ms"`
	LastPoll       time.Time `json:"last_poll"`
}

// Event is something that happened to a delivery, for metrics. Its text is the name of a counter in JSON, or "settled".
type Event string

// WorkerOption is an option of a worker.
type WorkerOption func(*Worker)

// Group is the group to consume. Default "default".
func Group(name string) WorkerOption { return func(w *Worker) { w.group = name } }

// Concurrency is how many handlers run at the same time. Default 8.
func Concurrency(n int) WorkerOption { return func(w *Worker) { w.concurrency = n } }

// Visibility is how long the broker waits for an extension or a settlement. Default 30 s.
func Visibility(d time.Duration) WorkerOption { return func(w *Worker) { w.visibility = d } }

// MaxRuntime is for how long the deadline of a delivery is extended. Default 1 h.
func MaxRuntime(d time.Duration) WorkerOption { return func(w *Worker) { w.maxRuntime = d } }

// Drain is how long a worker that stops waits for handlers. Default 25 s.
func Drain(d time.Duration) WorkerOption { return func(w *Worker) { w.drain = d } }

// Wait is the length of a poll, up to 60 s. Default 30 s.
func Wait(d time.Duration) WorkerOption { return func(w *Worker) { w.wait = d } }

// Logger is where failures are logged. Default: slog.Default().
func Logger(log *slog.Logger) WorkerOption { return func(w *Worker) { w.log = log } }

// OnEvent is called with each event; the delivery of a poll that failed is nil. It must neither block nor call the worker.
func OnEvent(hook func(Event, *Delivery)) WorkerOption { return func(w *Worker) { w.onEvent = hook } }

// Worker handles messages of a group.
type Worker struct {
	client                              *Client
	path, group                         string
	concurrency                         int
	visibility, maxRuntime, drain, wait time.Duration
	log                                 *slog.Logger
	onEvent                             func(Event, *Delivery)

	mutex      sync.Mutex
	changed    chan struct{}
	slots      map[string]*slot
	stats      Stats
	isStopping bool
	isOver     bool
}

type slot struct {
	delivery                        *Delivery
	cancel                          context.CancelCauseFunc
	deadline, extendAt, extendUntil time.Time
	verb                            string
	fields                          map[string]any
	decidedAt, notBefore            time.Time
	tries                           int
	isLost                          bool
}

// NewWorker creates a worker of a topic.
func NewWorker(c *Client, topic string, opts ...WorkerOption) *Worker {
	w := &Worker{
		client: c, group: "default", concurrency: 8, visibility: 30 * time.Second, maxRuntime: time.Hour, drain: 25 * time.Second,
		wait: 30 * time.Second, log: slog.Default(), changed: make(chan struct{}), slots: map[string]*slot{},
	}
	for _, option := range opts {
		option(w)
	}
	w.path = "/v1/topics/" + url.PathEscape(topic) + "/groups/" + url.PathEscape(w.group)
	return w
}

// Stats returns a copy of the counters, for health checks and metrics.
func (w *Worker) Stats() Stats {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	stats := w.stats
	stats.InFlight = len(w.slots)
	return stats
}

// Run works until the context ends. Then it reserves nothing more, waits for handlers until the time to drain is over, and returns
// nil. It returns an error that cannot pass. Use signal.NotifyContext to stop at SIGTERM. Run may be called once.
func (w *Worker) Run(ctx context.Context, handler Handler) error {
	// Handlers and settlements outlive the context.
	base := context.WithoutCancel(ctx)
	i := &interrupt{}
	var failure error
	polled := make(chan struct{})
	polling, endPolling := context.WithCancel(ctx)
	defer endPolling()
	go func() {
		defer close(polled)
		defer endPolling()
		failure = w.poll(polling, base, i, handler)
	}()
	var helpers sync.WaitGroup
	helpers.Add(2)
	go func() { defer helpers.Done(); w.settleLoop(base) }()
	go func() { defer helpers.Done(); w.extendLoop(base) }()

	<-polling.Done()
	drained := time.Now().Add(w.drain)
	w.update(func() { w.isStopping = true })
	i.set()
	<-polled
	w.until(drained, func() bool { return len(w.slots) == 0 })
	w.update(func() {
		for _, s := range w.slots {
			if s.verb == "" && !s.isLost {
				w.decide(s, "nack", map[string]any{"reason": "the worker stopped before the handler had finished", "delay_ms": 0})
				s.cancel(ErrStopped)
			}
		}
	})
	// Decisions are sent, or given up at their deadline.
	w.until(time.Now().Add(max(5*time.Second, w.visibility)), func() bool {
		for _, s := range w.slots {
			if s.verb != "" {
				return false
			}
		}
		return true
	})
	w.update(func() { w.isOver = true })
	helpers.Wait()
	return failure
}

// update changes the state, and wakes those that wait for a change.
func (w *Worker) update(change func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	change()
	w.ring()
}

func (w *Worker) ring() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits for a change, or until a time. It unlocks the mutex meanwhile.
func (w *Worker) await(at time.Time) {
	changed := w.changed
	w.mutex.Unlock()
	defer w.mutex.Lock()
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func (w *Worker) until(end time.Time, condition func() bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for !condition() && time.Now().Before(end) {
		w.await(end)
	}
}

// never is later than any time that a worker waits for.
func never() time.Time { return time.Now().Add(24 * time.Hour) }

func (w *Worker) event(name Event, counter *int, d *Delivery) {
	if counter != nil {
		*counter++
	}
	if w.onEvent != nil {
		w.onEvent(name, d)
	}
}

func (w *Worker) poll(ctx, base context.Context, i *interrupt, handler Handler) error {
	failures := 0
	// A broker hands out the messages of its own partitions, so polls that change between brokers would move them around.
	transport := w.client.transport.sibling()
	defer transport.client.CloseIdleConnections()
	for {
		w.mutex.Lock()
		for !w.isStopping && w.free() <= 0 {
			w.await(never())
		}
		free, isStopping := w.free(), w.isStopping
		w.mutex.Unlock()
		if isStopping || ctx.Err() != nil {
			return nil
		}
		var answer struct {
			Deliveries []struct {
				Delivery
				payload
			} `json:"deliveries"`
		}
		body, _ := json.Marshal(map[string]any{"max": free, "wait_ms": milliseconds(w.wait), "visibility_timeout_ms": milliseconds(w.visibility)})
		request := call{method: http.MethodPost, path: w.path + "/reserve", body: body, timeout: w.wait + 10*time.Second, interrupt: i}
		err := transport.do(base, request, &answer)
		if errors.Is(err, errInterrupted) {
			return nil
		}
		if err != nil {
			w.mutex.Lock()
			w.event("poll_failures", &w.stats.PollFailures, nil)
			w.mutex.Unlock()
			w.log.Warn("dwell: reserve failed", "error", err)
			var refused *Error
			if !errors.As(err, &refused) || !isPatient(refused) {
				return err
			}
			_ = sleep(ctx, max(refused.RetryAfter, backoff(failures, 100*time.Millisecond, 2*time.Second)))
			failures++
			continue
		}
		failures = 0
		w.update(func() {
			now := time.Now()
			w.stats.LastPoll = now
			for n := range answer.Deliveries {
				d := &answer.Deliveries[n]
				d.Delivery.Payload = d.payload.bytes()
				w.begin(base, &d.Delivery, now, handler)
			}
		})
	}
}

// free is how many handlers can begin. Settlements may be under way for as many more.
func (w *Worker) free() int {
	running := 0
	for _, s := range w.slots {
		if s.verb == "" {
			running++
		}
	}
	return min(w.concurrency-running, 2*w.concurrency-len(w.slots), 1000)
}

// isPatient reports whether a new token, scope or topic ends a refusal.
func isPatient(e *Error) bool {
	return e.mayPass() || e.Status == 401 || e.Status == 403 || e.Status == 404 || e.Status == 500
}

func (w *Worker) begin(base context.Context, d *Delivery, now time.Time, handler Handler) {
	ctx, cancel := context.WithCancelCause(base)
	s := &slot{delivery: d, cancel: cancel, deadline: now.Add(w.visibility), extendAt: now.Add(w.visibility / 3), extendUntil: now.Add(w.maxRuntime)}
	d.extend = func(ctx context.Context, visibility time.Duration) bool { return w.extend(ctx, []*slot{s}, visibility) }
	w.slots[d.Receipt] = s
	w.stats.LatenessMS = d.LatenessMS
	w.event("delivered", &w.stats.Delivered, d)
	if w.isStopping {
		w.decide(s, "nack", map[string]any{"delay_ms": 0})
		return
	}
	go func() {
		err := run(ctx, d, handler)
		w.end(s, err)
		cancel(nil)
	}()
}

// run turns a panic of a handler into an error.
func run(ctx context.Context, d *Delivery, handler Handler) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	return handler(ctx, d)
}

func (w *Worker) end(s *slot, err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	defer w.ring()
	var retry *retryError
	var bury *buryError
	switch {
	case s.verb != "":
	case s.isLost:
		delete(w.slots, s.delivery.Receipt)
	case err == nil:
		w.decide(s, "ack", nil)
	case errors.As(err, &bury):
		w.decide(s, "nack", map[string]any{"bury": true, "reason": bury.reason})
	case errors.As(err, &retry):
		w.decide(s, "nack", map[string]any{"delay_ms": milliseconds(retry.after), "reason": retry.reason})
	default:
		w.log.Warn("dwell: handler failed", "id", s.delivery.ID, "error", err)
		w.decide(s, "nack", map[string]any{"reason": err.Error()})
	}
}

func (w *Worker) decide(s *slot, verb string, fields map[string]any) {
	if reason, ok := fields["reason"].(string); ok {
		runes := []rune(reason)
		fields["reason"] = string(runes[:min(len(runes), longestReason)])
		if reason == "" {
			delete(fields, "reason")
		}
	}
	s.verb, s.fields, s.decidedAt = verb, fields, time.Now()
}
