package dwell_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"example.com/dwell"
)

var quiet = dwell.Logger(slog.New(slog.NewTextHandler(io.Discard, nil)))

// script is what the handler of a message does.
type script struct {
	Delivery object
	When     object
	Extend   string
	IsOurs   bool `json:"is_ours"`
	Raises   object
	Then     any
}

func workerOptions(t testing.TB, fields object) (opts []dwell.WorkerOption) {
	t.Helper()
	for name, value := range fields {
		switch name {
		case "group":
			opts = append(opts, dwell.Group(value.(string)))
		case "concurrency":
			opts = append(opts, dwell.Concurrency(int(value.(float64))))
		case "visibility":
			opts = append(opts, dwell.Visibility(duration(t, value.(string))))
		case "max_runtime":
			opts = append(opts, dwell.MaxRuntime(duration(t, value.(string))))
		case "drain":
			opts = append(opts, dwell.Drain(duration(t, value.(string))))
		case "error_details":
			opts = append(opts, dwell.ErrorDetails(value.(bool)))
		}
	}
	return opts
}

// play does what the vector says that the handler does.
func (s script) play(ctx context.Context, t testing.TB, d *dwell.Delivery) error {
	lab(t, "/mark", object{"name": "begun"}, nil)
	if why := differs(s.Delivery, plainOf(d)); s.Delivery != nil && why != "" {
		t.Error(why)
	}
	if s.When != nil {
		wait(t, s.When)
	}
	if s.Extend != "" {
		err := d.Extend(ctx, duration(t, s.Extend))
		if s.Raises != nil {
			raised(t, "", s.Raises, err, nil)
		} else if errors.Is(err, dwell.ErrLost) == s.IsOurs {
			t.Errorf("extend of %s: %v", d.ID, err)
		}
	}
	then, _ := s.Then.(object)
	if s.Then == "lost" {
		<-ctx.Done()
		lab(t, "/mark", object{"name": "lost"}, nil)
		return ctx.Err()
	}
	lab(t, "/mark", object{"name": "handled"}, nil)
	switch {
	case then["panic"] != nil:
		deep(number(then, "depth"), text(then, "panic"))
	case then["raise"] != nil:
		return errors.New(strings.Repeat(text(then, "raise"), max(1, number(then, "times"))))
	case then["retry"] != nil:
		var cause error
		if reason := text(then, "reason"); reason != "" {
			cause = errors.New(reason)
		}
		var opts []dwell.RetryOption
		if then["pause_key"] == true {
			opts = append(opts, dwell.PauseKey())
		}
		return dwell.Retry(duration(t, text(then, "retry")), cause, opts...)
	case then["bury"] != nil:
		return dwell.Bury(errors.New(text(then, "bury")))
	}
	return nil
}

func deep(depth int, text string) {
	if depth > 0 {
		deep(depth-1, text)
	}
	panic(text)
}

func work(t *testing.T, c *dwell.Client, server string, v vector) {
	events := map[dwell.Event]float64{}
	opts := []dwell.WorkerOption{quiet, dwell.OnEvent(func(name dwell.Event, _ *dwell.Delivery) { events[name]++ })}
	worker := dwell.NewWorker(c, text(v.Worker, "topic"), append(opts, workerOptions(t, v.Worker)...)...)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var ended sync.WaitGroup
	var err error
	ended.Add(1)
	go func() {
		defer ended.Done()
		err = worker.Run(ctx, func(ctx context.Context, d *dwell.Delivery) error { return v.Handlers[d.ID].play(ctx, t, d) })
	}()
	if v.Stop != nil {
		wait(t, v.Stop.When)
		lab(t, "/mark", object{"name": "stopping"}, nil)
		stop()
	}
	ended.Wait()
	stats := plainOf(worker.Stats()).(object)
	if why := differs(v.Stats, stats); v.Stats != nil && why != "" {
		t.Errorf("stats: %s", why)
	}
	for name, count := range events {
		if name != dwell.EventSettled && stats[string(name)] != count {
			t.Errorf("%v events %s, and stats have %v", count, name, stats[string(name)])
		}
	}
	if v.Raises != nil {
		raised(t, server, v.Raises, err, nil)
	} else if err != nil {
		t.Error(err)
	}
}
