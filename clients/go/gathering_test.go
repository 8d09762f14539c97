package dwell_test

import (
	"context"
	"testing"
	"time"

	"example.com/dwell"
)

// step is one step of a vector about a producer that gathers.
type step struct {
	// Push begins a push, which As names.
	Push object
	As   string
	// Wait is for the server's counters.
	Wait object
	// Answer is the name of a push whose answer is wanted: what it Returns or Raises.
	Answer  string
	Returns object
	Raises  object
	// Cancel is the name of a push that its caller gives up.
	Cancel string
	Flush  bool
	Close  bool
}

func producerOptions(t testing.TB, fields object) (opts []dwell.ProducerOption) {
	t.Helper()
	for name, value := range fields {
		switch name {
		case "at_once":
			opts = append(opts, dwell.AtOnce(int(value.(float64))))
		case "batch":
			opts = append(opts, dwell.BatchSize(int(value.(float64))))
		case "buffer":
			opts = append(opts, dwell.Buffer(int(value.(float64))))
		case "buffer_bytes":
			opts = append(opts, dwell.BufferBytes(int(value.(float64))))
		case "linger":
			opts = append(opts, dwell.Linger(duration(t, value.(string))))
		default:
			t.Fatalf("no option of a producer is named %s", name)
		}
	}
	return opts
}

// pushed is a push of a vector: its caller is a goroutine.
type pushed struct {
	cancel context.CancelFunc
	done   chan struct{}
	result dwell.PushResult
	err    error
}

func gather(t *testing.T, c *dwell.Client, server string, v vector) {
	ctx := context.Background()
	producer := dwell.NewProducer(c, producerOptions(t, v.Producer)...)
	pushes := map[string]*pushed{}
	for _, step := range v.Steps {
		switch {
		case step.Push != nil:
			if !isOfGo("push", step.Push) {
				continue
			}
			pushes[step.As] = begun(t, producer, step.Push)
			lab(t, "/mark", object{"name": "pushed"}, nil)
		case step.Wait != nil:
			wait(t, step.Wait)
		case step.Cancel != "":
			pushes[step.Cancel].cancel()
			<-pushes[step.Cancel].done
			lab(t, "/mark", object{"name": "cancelled"}, nil)
		case step.Flush:
			if err := producer.Flush(ctx); err != nil {
				t.Error(err)
			}
		case step.Close:
			if err := producer.Close(ctx); err != nil {
				t.Error(err)
			}
		case step.Answer != "":
			push := pushes[step.Answer]
			if push == nil {
				continue
			}
			<-push.done
			if step.Raises != nil {
				raised(t, server, step.Raises, push.err, nil)
				continue
			}
			if push.err != nil {
				t.Fatalf("%s: %v", step.Answer, push.err)
			}
			if why := differs(step.Returns, plainOf(push.result)); why != "" {
				t.Errorf("%s: %s", step.Answer, why)
			}
		}
	}
}

// begun begins a push. It returns when the producer has it or refuses it, or after a while in which it waits for room.
func begun(t *testing.T, producer *dwell.Producer, fields object) *pushed {
	m := message(t, fields)
	ctx, cancel := context.WithCancel(context.Background())
	push := &pushed{cancel: cancel, done: make(chan struct{})}
	taken := make(chan struct{})
	go func() {
		defer close(push.done)
		pending, err := producer.PushAsync(ctx, text(fields, "topic"), m)
		close(taken)
		if push.err = err; err == nil {
			push.result, push.err = pending.Wait(ctx)
		}
	}()
	select {
	case <-taken:
	case <-time.After(200 * time.Millisecond):
	}
	return push
}
