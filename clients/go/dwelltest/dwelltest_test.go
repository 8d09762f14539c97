package dwelltest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"example.com/dwell"
	"example.com/dwell/dwelltest"
)

const day = 24 * time.Hour

type seen struct {
	id      string
	attempt int
}

// consume handles messages until the test ends.
func consume(t *testing.T, b *dwelltest.Broker, topic string, handler func(*dwell.Delivery) error) (<-chan seen, *dwell.Worker) {
	handled := make(chan seen, 100)
	ctx, cancel := context.WithCancel(context.Background())
	worker := dwell.NewWorker(b.Client, topic, dwell.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	ended := make(chan error)
	go func() {
		ended <- worker.Run(ctx, func(_ context.Context, d *dwell.Delivery) error {
			defer func() { handled <- seen{d.ID, d.Attempt} }()
			return handler(d)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return handled, worker
}

func next(t *testing.T, handled <-chan seen) seen {
	t.Helper()
	select {
	case one := <-handled:
		return one
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was delivered")
		return seen{}
	}
}

func push(t *testing.T, b *dwelltest.Broker, topic string, m dwell.NewMessage) {
	t.Helper()
	if _, err := b.Client.Push(context.Background(), topic, m); err != nil {
		t.Fatal(err)
	}
}

func done(*dwell.Delivery) error { return nil }

// report says how long a test took after the start of the broker.
func report(t *testing.T, began time.Time) {
	t.Helper()
	t.Logf("%d ms", time.Since(began).Milliseconds())
}

func TestAReminderOf30Days(t *testing.T) {
	broker := dwelltest.Start(t)
	began := time.Now()
	push(t, broker, "reminders", dwell.NewMessage{Payload: "renew", ID: "renew", Delay: 30 * day})
	if moved := broker.Advance(29 * day); len(moved.Due) != 0 {
		t.Errorf("early: %+v", moved)
	}
	moved := broker.Advance(day)
	if len(moved.Due) != 1 || moved.Due[0] != (dwelltest.Due{Topic: "reminders", Group: "default", Messages: 1}) {
		t.Errorf("%+v", moved)
	}
	handled, _ := consume(t, broker, "reminders", done)
	if one := next(t, handled); one != (seen{"renew", 1}) {
		t.Errorf("%+v", one)
	}
	report(t, began)
}

func TestALadderOfRetriesOverThreeHours(t *testing.T) {
	broker := dwelltest.Start(t)
	began := time.Now()
	settings := dwell.TopicSettings{Backoff: dwell.Ladder(30*time.Minute, time.Hour, 90*time.Minute)}
	if _, err := broker.Client.CreateTopic(context.Background(), "payments", settings); err != nil {
		t.Fatal(err)
	}
	handled, worker := consume(t, broker, "payments", func(d *dwell.Delivery) error {
		if d.Attempt < 4 {
			return errors.New("no answer of the bank")
		}
		return nil
	})
	push(t, broker, "payments", dwell.NewMessage{Payload: "pay", ID: "pay"})
	for n, step := range []time.Duration{30 * time.Minute, time.Hour, 90 * time.Minute, 0} {
		if one := next(t, handled); one != (seen{"pay", n + 1}) {
			t.Errorf("%+v", one)
		}
		// The worker's decision is with the broker a few milliseconds after the handler has ended.
		for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if stats := worker.Stats(); stats.Acked+stats.Nacked > n {
				break
			}
		}
		broker.Advance(step)
	}
	report(t, began)
}

func TestACronJobOfNextMarch(t *testing.T) {
	broker := dwelltest.Start(t)
	began := time.Now()
	job := dwell.NewCronJob{Cron: "0 9 1 3 *", TimeZone: "Europe/Berlin", Payload: "report"}
	if _, err := broker.Client.PutCron(context.Background(), "reports", "spring", job); err != nil {
		t.Fatal(err)
	}
	march := time.Date(broker.Now().Year()+1, time.March, 1, 8, 0, 0, 0, time.UTC)
	handled, _ := consume(t, broker, "reports", done)
	moved := broker.AdvanceTo(march)
	if len(moved.Fired) != 1 || moved.Fired[0].Name != "spring" || moved.Now.Before(march) {
		t.Errorf("%+v", moved)
	}
	if one := next(t, handled); one.attempt != 1 {
		t.Errorf("%+v", one)
	}
	report(t, began)
}
