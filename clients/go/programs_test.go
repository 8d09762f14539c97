package dwell_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/dwell"
	"example.com/dwell/dwelltest"
)

// Five small programs, as an application would have them, against a broker.

// counted is how many messages of a topic the group "default" has.
func counted(t *testing.T, c *dwell.Client, topic string) dwell.Counts {
	t.Helper()
	group, err := c.Group(context.Background(), topic, "default")
	if err != nil {
		t.Fatal(err)
	}
	return group.Totals
}

// reminders pushes so many messages of an hour, and returns their names.
func reminders(t *testing.T, c *dwell.Client, topic string, count int) (refs []dwell.Ref) {
	t.Helper()
	var messages []dwell.NewMessage
	for n := range count {
		m := dwell.NewMessage{ID: fmt.Sprintf("remind-%d", n), Key: fmt.Sprintf("customer-%d", n%7), Payload: n, Delay: time.Hour}
		messages, refs = append(messages, m), append(refs, dwell.Ref{ID: m.ID, Key: m.Key})
	}
	if _, err := c.PushMany(context.Background(), topic, messages); err != nil {
		t.Fatal(err)
	}
	return refs
}

func TestProgramPushes1000FromManyGoroutines(t *testing.T) {
	ctx := context.Background()
	broker := dwelltest.Start(t)
	producer := dwell.NewProducer(broker.Client)
	var running sync.WaitGroup
	for n := range 1000 {
		running.Add(1)
		go func() {
			defer running.Done()
			m := dwell.NewMessage{ID: fmt.Sprintf("order-%d", n), Payload: n, Delay: time.Hour}
			result, err := producer.Push(ctx, "orders", m)
			if err != nil || result.ID != m.ID || result.Status != dwell.PushStored {
				t.Errorf("%+v: %v", result, err)
			}
		}()
	}
	running.Wait()
	if err := producer.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if count := counted(t, broker.Client, "orders"); count.Scheduled != 1000 {
		t.Errorf("%+v", count)
	}
}

func TestProgramCancelsHalf(t *testing.T) {
	ctx := context.Background()
	broker := dwelltest.Start(t)
	refs := reminders(t, broker.Client, "reminders", 1000)
	results, err := broker.Client.CancelMany(ctx, "reminders", refs[:500])
	if err != nil || results[499].Value.Status != dwell.ControlCancelled {
		t.Fatal(results[499], err)
	}
	if count := counted(t, broker.Client, "reminders"); count.Scheduled != 500 {
		t.Errorf("%+v", count)
	}
	left := map[string]bool{}
	for m, err := range broker.Client.List(ctx, "reminders", dwell.ListQuery{Order: dwell.OrderDue}) {
		if err != nil {
			t.Fatal(err)
		}
		left[m.ID] = true
	}
	if len(left) != 500 || left[refs[499].ID] || !left[refs[500].ID] {
		t.Errorf("%d are left", len(left))
	}
	if _, err = broker.Client.Get(ctx, "reminders", refs[0]); !errors.Is(err, dwell.ErrNotFound) {
		t.Error(err)
	}
}

// smtpError is an error that is more than a text.
type smtpError struct{ code int }

func (e *smtpError) Error() string { return fmt.Sprintf("smtp: %d", e.code) }

func TestProgramWhoseWorkerFails(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	broker := dwelltest.Start(t)
	settings := dwell.TopicSettings{MaxAttempts: dwell.Ptr(1)}
	if _, err := broker.Client.CreateTopic(ctx, "mail", settings); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"error", "panic", "bury"} {
		if _, err := broker.Client.Push(ctx, "mail", dwell.NewMessage{ID: id, Payload: id}); err != nil {
			t.Fatal(err)
		}
	}
	over := make(chan struct{}, 3)
	worker := dwell.NewWorker(broker.Client, "mail", quiet, dwell.OnEvent(func(event dwell.Event, _ *dwell.Delivery) {
		if event == dwell.EventSettled {
			over <- struct{}{}
		}
	}))
	ended := make(chan error)
	go func() {
		ended <- worker.Run(ctx, func(_ context.Context, d *dwell.Delivery) error {
			switch d.ID {
			case "panic":
				var codes []int
				return &smtpError{codes[3]}
			case "bury":
				return dwell.Bury(&smtpError{550})
			}
			return fmt.Errorf("send: %w", &smtpError{451})
		})
	}()
	for range 3 {
		<-over
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	failures := map[string]*dwell.Failure{}
	for m, err := range broker.Client.DeadLetters(context.Background(), "mail", "default", dwell.DeadLetterQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		failures[m.ID] = m.LastError
	}
	for id, expected := range map[string]dwell.Failure{
		"error": {Class: "*dwell_test.smtpError", Message: "send: smtp: 451"},
		"bury":  {Class: "*dwell_test.smtpError", Message: "smtp: 550"},
		"panic": {Class: "runtime.boundsError", Message: "runtime error: index out of range [3] with length 0"},
	} {
		failure := failures[id]
		if failure == nil || failure.Class != expected.Class || failure.Message != expected.Message {
			t.Errorf("%s: %+v", id, failure)
		}
	}
	stack := failures["panic"].Stack
	if first, _, _ := strings.Cut(stack, "\n"); !strings.Contains(first, "TestProgramWhoseWorkerFails") && !strings.Contains(stack, "programs_test.go") {
		t.Errorf("the stack does not say where the panic arose:\n%s", stack)
	}
	redriven, err := broker.Client.Redrive(context.Background(), "mail", "default", dwell.Selection{All: true})
	if err != nil || redriven.Redriven != 3 {
		t.Error(redriven, err)
	}
}

func TestProgramThatStopsGracefully(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	broker := dwelltest.Start(t)
	var messages []dwell.NewMessage
	for n := range 20 {
		messages = append(messages, dwell.NewMessage{Payload: n})
	}
	if _, err := broker.Client.PushMany(ctx, "invoices", messages); err != nil {
		t.Fatal(err)
	}
	var begun, finished atomic.Int64
	worker := dwell.NewWorker(broker.Client, "invoices", dwell.Concurrency(4), quiet)
	err := worker.Run(ctx, func(handling context.Context, _ *dwell.Delivery) error {
		begun.Add(1)
		stop()
		// A handler that has begun may end: its context is not that of Run.
		select {
		case <-time.After(100 * time.Millisecond):
			finished.Add(1)
			return nil
		case <-handling.Done():
			return handling.Err()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	stats := worker.Stats()
	if begun.Load() != finished.Load() || stats.Acked != int(finished.Load()) || stats.InFlight != 0 {
		t.Errorf("%d begun, %d finished: %+v", begun.Load(), finished.Load(), stats)
	}
	// The others are ready at once, and none is in flight.
	if count := counted(t, broker.Client, "invoices"); count.InFlight != 0 || count.Ready != 20-finished.Load() {
		t.Errorf("%+v, %d finished", count, finished.Load())
	}
}

func TestProgramOnAClock(t *testing.T) {
	ctx := context.Background()
	broker := dwelltest.Start(t)
	reminders(t, broker.Client, "reminders", 10)
	if count := counted(t, broker.Client, "reminders"); count.Scheduled != 10 {
		t.Fatalf("%+v", count)
	}
	forecast, err := broker.Client.Forecast(ctx, "reminders", "default", 30*time.Minute, 3)
	if err != nil || forecast.Step != 30*time.Minute || len(forecast.Spans) != 3 || forecast.Spans[0].Due != 0 {
		t.Fatal(forecast, err)
	}
	moved := broker.Advance(time.Hour)
	if len(moved.Due) != 1 || moved.Due[0].Messages != 10 {
		t.Fatalf("%+v", moved)
	}
	running, stop := context.WithCancel(ctx)
	var handled atomic.Int64
	err = dwell.NewWorker(broker.Client, "reminders", quiet).Run(running, func(context.Context, *dwell.Delivery) error {
		if handled.Add(1) == 10 {
			stop()
		}
		return nil
	})
	if err != nil || handled.Load() != 10 {
		t.Error(handled.Load(), err)
	}
}
