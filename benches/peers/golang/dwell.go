package main

import (
	"context"
	"os"
	"time"

	"example.com/dwell"
)

const (
	// As an application has them: each goroutine pushes one message after the other, and a producer gathers them.
	dwellCallers     = 32
	dwellBatch       = 100
	dwellConcurrency = 100
	dwellTopic       = "bench"
)

// dwellPeer uses the Go client of dwell: pushes of a Producer, and one Worker.
type dwellPeer struct {
	client   *dwell.Client
	producer *dwell.Producer
}

func openDwell() (*dwellPeer, error) {
	client, err := dwell.New("http://127.0.0.1:" + os.Getenv("PORT"))
	if err != nil {
		return nil, err
	}
	_, err = client.CreateTopic(context.Background(), dwellTopic, dwell.TopicSettings{})
	return &dwellPeer{client, dwell.NewProducer(client)}, err
}

func (p *dwellPeer) batch() int   { return told("BATCH", dwellBatch) }
func (p *dwellPeer) callers() int { return told("CALLERS", dwellCallers) }

func (p *dwellPeer) push(_ int, messages []message) error {
	ctx := context.Background()
	pushed := make([]*dwell.Pending, 0, len(messages))
	for _, message := range messages {
		pending, err := p.producer.PushAsync(ctx, dwellTopic, dwell.NewMessage{Payload: message.payload, DueAt: time.UnixMilli(message.due)})
		if err != nil {
			return err
		}
		pushed = append(pushed, pending)
	}
	for _, pending := range pushed {
		if _, err := pending.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *dwellPeer) consume(tally *tally) error {
	acked := dwell.OnEvent(func(event dwell.Event, _ *dwell.Delivery) {
		if event == dwell.EventAcked {
			tally.settled(1)
		}
	})
	worker := dwell.NewWorker(p.client, dwellTopic, dwell.Concurrency(told("CALLERS", dwellConcurrency)), acked)
	go func() {
		tally.fail(worker.Run(context.Background(), func(_ context.Context, d *dwell.Delivery) error {
			tally.received(d.Payload)
			return nil
		}))
	}()
	return nil
}
