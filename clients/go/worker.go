package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Delivery is a message that was handed to a worker.
type Delivery struct {
	Contents
	ID        string    `json:"id"`
	Receipt   string    `json:"receipt"`
	Attempt   int       `json:"attempt"`
	Partition int       `json:"partition"`
	DueAt     time.Time `json:"due_at"`
	// Deadline is when the message is delivered again, unless it is settled or extended before. It is as of the delivery.
	Deadline time.Time `json:"deadline"`
	// Lateness is the time from due to the hand-over.
	Lateness time.Duration `json:"-"`
	extend   func(context.Context, time.Duration) error
}

// UnmarshalJSON reads a delivery of an answer.
func (d *Delivery) UnmarshalJSON(data []byte) error {
	type fields Delivery
	var late struct {
		Lateness millis `json:"lateness_ms"`
	}
	err := cmp.Or(json.Unmarshal(data, (*fields)(d)), json.Unmarshal(data, &late), readPayload(data, &d.Payload))
	d.Lateness = time.Duration(late.Lateness)
	return err
}

// String is the delivery without its payload and its receipt.
func (d Delivery) String() string {
	return fmt.Sprintf("Delivery{id: %q, %s, attempt: %d, due at: %s}", d.ID, d.Contents.inside(), d.Attempt, shown(d.DueAt))
}

// GoString is the delivery without its payload and its receipt.
func (d Delivery) GoString() string { return "dwell." + d.String() }

// Extend moves the deadline to this time from now. The worker does so by itself with its own visibility timeout. The error is ErrLost
// if another consumer may have the message, and an *Error if the broker refuses this time, such as one beyond a limit: then the deadline
// is as before, and the worker still extends it.
func (d *Delivery) Extend(ctx context.Context, visibility time.Duration) error {
	if visibility <= 0 {
		return wrong("visibility", "has to be above 0")
	}
	return d.extend(ctx, visibility)
}

// Handler does the work of a delivery. Returning nil acknowledges the message. An error delivers it again after the backoff of the
// topic, Retry after the given time, and Bury makes it a dead letter. The context ends once another consumer may have the
// message, and then nothing is settled.
type Handler func(ctx context.Context, d *Delivery) error

// Stats are counters since the start, and the state now.
type Stats struct {
	Delivered int `json:"delivered"`
	Acked     int `json:"acked"`
	Nacked    int `json:"nacked"`
	Buried    int `json:"buried"`
	// Released are deliveries that were given back before a handler began.
	Released int `json:"released"`
	Extended int `json:"extended"`
	// Stale are settlements that came too late, and Lost are deliveries whose handler was cancelled.
	Stale          int `json:"stale"`
	Lost           int `json:"lost"`
	PollFailures   int `json:"poll_failures"`
	SettleFailures int `json:"settle_failures"`
	InFlight       int `json:"in_flight"`
	// Lateness is that of the last delivery.
	Lateness time.Duration `json:"lateness"`
	LastPoll time.Time     `json:"last_poll"`
}

// WorkerOption is an option of a worker.
type WorkerOption func(*Worker)

// Group is the group to consume. Default "default".
func Group(name string) WorkerOption { return func(w *Worker) { w.group = name } }

// Concurrency is how many handlers run at the same time, at least 1. Default 8.
func Concurrency(n int) WorkerOption { return func(w *Worker) { w.concurrency = n } }

// Visibility is how long the broker waits for an extension or a settlement. Default: the visibility timeout of the topic.
func Visibility(d time.Duration) WorkerOption { return func(w *Worker) { w.visibility = d } }

// MaxRuntime is for how long the deadline of a delivery is extended. Default 1 h.
func MaxRuntime(d time.Duration) WorkerOption { return func(w *Worker) { w.maxRuntime = d } }

// Drain is how long a worker that stops waits for handlers. Default 25 s.
func Drain(d time.Duration) WorkerOption { return func(w *Worker) { w.drain = d } }

// Wait is the length of a poll, up to 60 s. Default 30 s.
func Wait(d time.Duration) WorkerOption { return func(w *Worker) { w.wait = d } }

// ErrorDetails says whether a nack tells the type of the error and the stack of a panic, or only the text. Default true.
func ErrorDetails(on bool) WorkerOption { return func(w *Worker) { w.hasDetails = on } }

// Logger is where failures are logged. Default: slog.Default().
func Logger(log *slog.Logger) WorkerOption { return func(w *Worker) { w.log = log } }

// OnEvent is called with each event; the delivery of a poll that failed is nil. It must neither block nor call the worker.
func OnEvent(hook func(Event, *Delivery)) WorkerOption { return func(w *Worker) { w.onEvent = hook } }

// Worker handles messages of a group.
type Worker struct {
	client                              *Client
	topic, group, path                  string
	concurrency                         int
	visibility, maxRuntime, drain, wait time.Duration
	log                                 *slog.Logger
	onEvent                             func(Event, *Delivery)
	hasDetails                          bool

	mutex      sync.Mutex
	changed    chan struct{}
	slots      map[string]*slot
	stats      Stats
	isRun      bool
	isStopping bool
	isOver     bool
}

// slot is a delivery from the hand-over until its settlement is answered.
type slot struct {
	delivery                        *Delivery
	cancel                          context.CancelCauseFunc
	visibility                      time.Duration
	deadline, extendAt, extendUntil time.Time
	// verb is what was decided: "ack", "nack" or "release"; empty while the handler runs.
	verb                 string
	fields               nack
	decidedAt, notBefore time.Time
	tries                int
	// isAlone sends its settlement in a separate request, since the broker refused it together with others.
	isAlone bool
	// isExtendedAlone sends its extension in a separate request, for the same reason.
	isExtendedAlone bool
	isLost          bool
}

// nack is a delivery that failed. A release and an ack have only the receipt.
type nack struct {
	Receipt  string  `json:"receipt"`
	Delay    *millis `json:"delay_ms,omitempty"`
	PauseKey bool    `json:"pause_key,omitempty"`
	Bury     bool    `json:"bury,omitempty"`
	Reason   any     `json:"reason,omitempty"`
}

// NewWorker creates a worker of a topic. Run returns an ArgumentError if an option cannot be.
func NewWorker(c *Client, topic string, opts ...WorkerOption) *Worker {
	w := &Worker{
		client: c, topic: topic, group: "default", concurrency: 8, maxRuntime: time.Hour, drain: 25 * time.Second,
		wait: 30 * time.Second, log: slog.Default(), hasDetails: true, changed: make(chan struct{}), slots: map[string]*slot{},
	}
	for _, option := range opts {
		option(w)
	}
	w.path = pathOf(topic, "groups", w.group)
	return w
}

func (w *Worker) check() error {
	if w.concurrency < 1 {
		return wrong("Concurrency", fmt.Sprintf("is %d, and has to be at least 1", w.concurrency))
	}
	return cmp.Or(named("topic", w.topic, "Group", w.group), notNegative("Visibility", w.visibility), notNegative("MaxRuntime", w.maxRuntime),
		notNegative("Drain", w.drain), notNegative("Wait", w.wait))
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
	if err := w.check(); err != nil {
		return err
	}
	if err := w.beginRun(); err != nil {
		return err
	}
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
				w.decide(s, "nack", nack{Reason: "the worker stopped before the handler had finished", Delay: Ptr(millis(0))})
				s.cancel(ErrStopped)
			}
		}
	})
	// Decisions are sent, or given up at their deadline.
	w.until(time.Now().Add(w.longestVisibility()), func() bool {
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

// beginRun refuses a second run.
func (w *Worker) beginRun() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.isRun {
		return errors.New("dwell: Run of a worker may be called once: make another worker")
	}
	w.isRun = true
	return nil
}

// longestVisibility is how long a decision may be repeated.
func (w *Worker) longestVisibility() time.Duration {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	longest := 5 * time.Second
	for _, s := range w.slots {
		longest = max(longest, s.visibility)
	}
	return longest
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

// reserve is a request for deliveries, and reserved its answer.
type (
	reserve struct {
		Max        int     `json:"max"`
		Wait       millis  `json:"wait_ms"`
		Visibility *millis `json:"visibility_timeout_ms,omitempty"`
	}
	reserved struct {
		Deliveries []Delivery `json:"deliveries"`
		Visibility millis     `json:"visibility_timeout_ms"`
	}
)

func (w *Worker) poll(ctx, base context.Context, i *interrupt, handler Handler) error {
	failures := 0
	// A broker hands out the messages of the partitions that it owns, so polls that change between brokers would move them around.
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
		var answer reserved
		body, _ := json.Marshal(reserve{Max: free, Wait: millis(w.wait), Visibility: ms(w.visibility)})
		request := call{method: http.MethodPost, path: w.path + "/reserve", body: body, timeout: w.wait + 10*time.Second, interrupt: i}
		err := transport.do(base, request, &answer)
		visibility := cmp.Or(w.visibility, time.Duration(answer.Visibility))
		if err == nil && visibility == 0 && len(answer.Deliveries) > 0 {
			err = &Error{Server: transport.server, Cause: errors.New("the answer has no visibility_timeout_ms")}
		}
		if errors.Is(err, errInterrupted) {
			return nil
		}
		if err != nil {
			w.mutex.Lock()
			w.event(EventPollFailures, &w.stats.PollFailures, nil)
			w.mutex.Unlock()
			w.log.Warn("dwell: reserve failed", "topic", w.topic, "group", w.group, "error", err)
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
				w.begin(base, &answer.Deliveries[n], visibility, now, handler)
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

func (w *Worker) begin(base context.Context, d *Delivery, visibility time.Duration, now time.Time, handler Handler) {
	ctx, cancel := context.WithCancelCause(base)
	s := &slot{delivery: d, cancel: cancel, visibility: visibility, deadline: now.Add(visibility), extendAt: now.Add(visibility / 3), extendUntil: now.Add(w.maxRuntime)}
	d.extend = func(ctx context.Context, visibility time.Duration) error {
		return w.extend(ctx, []*slot{s}, visibility)
	}
	w.slots[d.Receipt] = s
	w.stats.Lateness = d.Lateness
	w.event(EventDelivered, &w.stats.Delivered, d)
	if w.isStopping {
		w.decide(s, "release", nack{})
		cancel(ErrStopped)
		return
	}
	go w.handle(ctx, s, handler)
}

// handle runs the handler, and turns a panic into an error.
func (w *Worker) handle(ctx context.Context, s *slot, handler Handler) {
	// It stays if the handler ends its goroutine, as t.FailNow does.
	err := errors.New("the handler ended its goroutine")
	defer func() {
		if panicked := recover(); panicked != nil {
			err = newPanic(panicked)
		}
		w.end(s, err)
		s.cancel(nil)
	}()
	err = handler(ctx, s.delivery)
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
		w.decide(s, "ack", nack{})
	case errors.As(err, &bury):
		w.decide(s, "nack", nack{Bury: true, Reason: causeOf(err, bury.cause, w.hasDetails)})
	case errors.As(err, &retry):
		reason := causeOf(err, retry.cause, w.hasDetails)
		w.decide(s, "nack", nack{Delay: Ptr(millis(retry.after)), PauseKey: retry.pausesKey, Reason: reason})
	default:
		w.log.Warn("dwell: handler failed", "topic", w.topic, "group", w.group, "id", s.delivery.ID, "error", err)
		w.decide(s, "nack", nack{Reason: reasonOf(err, w.hasDetails)})
	}
}

func (w *Worker) decide(s *slot, verb string, fields nack) {
	fields.Receipt = s.delivery.Receipt
	s.verb, s.fields, s.decidedAt = verb, fields, time.Now()
}
