package dwell_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/dwell"
)

const pushers = 4

func begin(t *testing.T, story string, messages int, opts ...dwell.Option) (c *dwell.Client, end func() (faults int)) {
	t.Helper()
	var begun struct {
		Server    string
		TokenFile string `json:"token_file"`
		CAFile    string `json:"ca_file"`
	}
	lab(t, "/story", object{"name": story, "messages": messages}, &begun)
	c, err := dwell.New(begun.Server, append(opts, dwell.TokenFile(begun.TokenFile), dwell.CAFile(begun.CAFile), dwell.Timeout(10*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() int {
		var ended struct {
			Faults   int
			Failures []string
		}
		lab(t, "/story/end", nil, &ended)
		for _, failure := range ended.Failures {
			t.Error(failure)
		}
		c.Close()
		return ended.Faults
	}
}

// tally is what a story counts.
type tally struct {
	t                *testing.T
	messages, faults int
	mutex            sync.Mutex
	late             []int64
	pushed, early    int
	handled          map[string]int
	isDone           chan struct{}
	// replace asks for another worker.
	replace chan struct{}
}

func (y *tally) handle(_ context.Context, d *dwell.Delivery) error {
	now := time.Now()
	y.mutex.Lock()
	if now.Before(d.DueAt) {
		y.early++
	}
	isNew := y.handled[d.ID] == 0
	y.handled[d.ID]++
	if d.Attempt == 1 {
		y.late = append(y.late, d.Lateness.Milliseconds())
	}
	count := len(y.handled)
	y.mutex.Unlock()
	if !isNew {
		return nil
	}
	if step := max(1, y.messages/100); count%step == 0 {
		if err := labError("/mark", object{"name": "handled", "by": step}, nil); err != nil {
			y.t.Error(err)
		}
	}
	if y.faults == 0 && count%(y.messages/4) == 0 {
		y.replace <- struct{}{}
	}
	if count == y.messages {
		close(y.isDone)
	}
	return nil
}

// work runs workers until the context ends, and returns how many settlements were stale. Where the brokers have no faults, the worker
// is replaced while messages are in flight.
func (y *tally) work(running context.Context, c *dwell.Client) (stale int) {
	for running.Err() == nil {
		one, end := context.WithCancel(running)
		go func() {
			defer end()
			select {
			case <-y.replace:
			case <-running.Done():
			}
		}()
		worker := dwell.NewWorker(c, "orders", dwell.Concurrency(32), dwell.Visibility(3*time.Second), dwell.Wait(5*time.Second), quiet)
		if err := worker.Run(one, y.handle); err != nil {
			y.t.Error(err)
		}
		stale += worker.Stats().Stale
	}
	return stale
}

// push pushes every message, in batches of 50, that is due within the spread.
func (y *tally) push(ctx context.Context, c *dwell.Client, spread int) {
	var pushing sync.WaitGroup
	for pusher := range pushers {
		pushing.Add(1)
		go func() {
			defer pushing.Done()
			for first := pusher; first < y.messages; first += pushers * 50 {
				var batch []dwell.NewMessage
				for n := first; n < min(first+pushers*50, y.messages); n += pushers {
					batch = append(batch, dwell.NewMessage{
						Payload: map[string]int{"n": n}, ID: fmt.Sprintf("m-%d", n), Delay: time.Duration(n*7919%spread) * time.Millisecond,
					})
				}
				results, err := c.PushMany(ctx, "orders", batch)
				if err != nil {
					y.t.Error(err)
				}
				y.mutex.Lock()
				y.pushed += len(results)
				y.mutex.Unlock()
			}
		}()
	}
	pushing.Wait()
}

func story(t *testing.T, name string, faults int) {
	messages, err := strconv.Atoi(os.Getenv("MESSAGES"))
	if err != nil {
		messages = 2000
	}
	patience := 2*time.Minute + time.Duration(messages)*20*time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// A push is repeated for as long as a fault lasts.
	c, end := begin(t, name, messages, dwell.RetryFor(time.Minute))
	if _, err := c.CreateTopic(ctx, "orders", dwell.TopicSettings{Partitions: dwell.Ptr(4)}); err != nil {
		t.Fatal(err)
	}
	y := &tally{t: t, messages: messages, faults: faults, handled: map[string]int{}, isDone: make(chan struct{}), replace: make(chan struct{}, 4)}
	running, stop := context.WithCancel(ctx)
	defer stop()
	stale := make(chan int)
	go func() { stale <- y.work(running, c) }()
	began := time.Now()
	// About 1,000 a second are due.
	y.push(ctx, c, max(1000, messages))
	select {
	case <-y.isDone:
	case <-ctx.Done():
	}
	took := time.Since(began)
	stop()
	y.report(name, took, <-stale, end())
}

func (y *tally) report(name string, took time.Duration, stale, seen int) {
	y.t.Helper()
	y.mutex.Lock()
	defer y.mutex.Unlock()
	lost, again, p99 := y.messages-len(y.handled), -len(y.handled), int64(0)
	for _, times := range y.handled {
		again += times
	}
	slices.Sort(y.late)
	if len(y.late) > 0 {
		p99 = y.late[len(y.late)*99/100]
	}
	fmt.Printf("go %s: %d messages in %.1f s, %d faults, %d lost, %d early, %d again, %d stale, p99 of lateness %d ms\n",
		name, y.messages, took.Seconds(), seen, lost, y.early, again, stale, p99)
	if y.faults == 0 && again+stale > 0 {
		y.t.Errorf("%d again, %d stale", again, stale)
	}
	if seen != y.faults || y.pushed != y.messages || lost != 0 || y.early != 0 {
		y.t.Errorf("%d of %d faults, %d of %d pushed, %d lost, %d early", seen, y.faults, y.pushed, y.messages, lost, y.early)
	}
}

func TestNothingIsLostWithoutFaults(t *testing.T)               { story(t, "calm", 0) }
func TestNothingIsLostWhenTheBrokerIsKilled(t *testing.T)       { story(t, "kills", 4) }
func TestNothingIsLostWhenTheBrokerIsRestarted(t *testing.T)    { story(t, "restarts", 4) }
func TestNothingIsLostWhenRedisIsKilled(t *testing.T)           { story(t, "outages", 4) }
func TestNothingIsLostWhenOneOfTwoBrokersIsKilled(t *testing.T) { story(t, "brokers", 4) }

func TestMessagesArePushedChangedAndFound(t *testing.T) {
	ctx := context.Background()
	c, end := begin(t, "calm", 0)
	defer end()
	ref := dwell.Ref{ID: "close-4713", Key: "order-4713"}
	order := map[string]any{"order": 4713.0}
	m := dwell.NewMessage{Payload: order, ID: ref.ID, Key: ref.Key, Delay: 30 * time.Minute, Meta: map[string]string{"shop": "7"}}
	pushed, err := c.Push(ctx, "orders", m)
	if err != nil || pushed.ID != ref.ID || pushed.Status != "stored" || !pushed.TopicCreated {
		t.Fatal(pushed, err)
	}
	if again, err := c.Push(ctx, "orders", m); err != nil || again.Status != "duplicate" || !again.DueAt.Equal(pushed.DueAt) {
		t.Error(again, err)
	}
	message, err := c.Get(ctx, "orders", ref)
	var payload map[string]any
	if err != nil || message.State != "scheduled" || message.JSON(&payload) != nil || !reflect.DeepEqual(payload, order) || message.Meta["shop"] != "7" {
		t.Error(message, err)
	}
	moved, err := c.Reschedule(ctx, "orders", ref, dwell.Reschedule{Delay: 90 * time.Minute, ETag: message.ETag})
	if err != nil || moved.Status != "rescheduled" || (moved.DueAt.Sub(pushed.DueAt)-time.Hour).Abs() > 30*time.Second {
		t.Error(moved, err)
	}
	_, err = c.Reschedule(ctx, "orders", ref, dwell.Reschedule{Now: true, ETag: message.ETag})
	if !errors.Is(err, dwell.ErrPreconditionFailed) {
		t.Error(err)
	}
	if cancelled, err := c.Cancel(ctx, "orders", ref); err != nil || cancelled.Status != "cancelled" {
		t.Error(cancelled, err)
	}
	if _, err = c.Get(ctx, "orders", ref); !errors.Is(err, dwell.ErrNotFound) {
		t.Error(err)
	}
	if _, err = c.Push(ctx, "orders", dwell.NewMessage{Payload: "x", Priority: 10}); !errors.Is(err, dwell.ErrInvalid) {
		t.Error(err)
	}
}

func TestPayloadsArriveAsTheyWerePushed(t *testing.T) { arrive(t, "restarts") }
func TestPayloadsArriveOverTLS(t *testing.T)          { arrive(t, "tls") }

func arrive(t *testing.T, story string) {
	t.Helper()
	c, end := begin(t, story, 0)
	defer end()
	payloads := map[string]any{"bytes": []byte{0, 255}, "none": []byte(nil), "text": "käse", "binary": "\xff\x00", "empty": "", "json": []any{1.0, nil, "🧀"}, "null": nil}
	expected := map[string]string{"bytes": "\x00\xff", "none": "", "text": "käse", "binary": "\xff\x00", "empty": "", "json": `[1,null,"🧀"]`, "null": "null"}
	for id, payload := range payloads {
		if _, err := c.Push(context.Background(), "orders", dwell.NewMessage{Payload: payload, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	var mutex sync.Mutex
	seen := map[string]string{}
	worker := dwell.NewWorker(c, "orders", quiet)
	err := worker.Run(ctx, func(_ context.Context, d *dwell.Delivery) error {
		mutex.Lock()
		defer mutex.Unlock()
		seen[d.ID] = string(d.Payload)
		if len(seen) == len(expected) {
			stop()
		}
		return nil
	})
	if err != nil || !reflect.DeepEqual(seen, expected) {
		t.Error(seen, err)
	}
}

func TestPushesCarryTheContextThatIsInjected(t *testing.T) {
	type spanKey struct{}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	inject := dwell.Inject(func(ctx context.Context, h http.Header) {
		if parent, ok := ctx.Value(spanKey{}).(string); ok {
			h.Set("traceparent", parent)
			h.Set("baggage", "shop=7")
		}
	})
	traced, end := begin(t, "calm", 0, inject)
	defer end()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	span := context.WithValue(ctx, spanKey{}, parent)
	_, one := traced.Push(span, "orders", dwell.NewMessage{Payload: "x", ID: "one"})
	_, many := traced.PushMany(span, "orders", []dwell.NewMessage{{Payload: "x", ID: "many"}})
	_, none := traced.Push(ctx, "orders", dwell.NewMessage{Payload: "x", ID: "none"})
	if err := errors.Join(one, many, none); err != nil {
		t.Fatal(err)
	}
	var mutex sync.Mutex
	seen := map[string]string{}
	err := dwell.NewWorker(traced, "orders", quiet).Run(ctx, func(_ context.Context, d *dwell.Delivery) error {
		mutex.Lock()
		defer mutex.Unlock()
		if seen[d.ID] = d.TraceParent; len(seen) == 3 {
			stop()
		}
		return nil
	})
	if expected := map[string]string{"one": parent, "many": parent, "none": ""}; err != nil || !reflect.DeepEqual(seen, expected) {
		t.Error(seen, err)
	}
}
