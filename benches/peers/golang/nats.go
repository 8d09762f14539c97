package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	natsBatch   = 1_000
	natsCallers = 4
	natsStream  = "bench"
	// Where messages wait, each on a subject that only it has, and where the server publishes them when they are due.
	natsWaiting = "wait"
	natsDue     = "due"
)

// natsPeer has two connections for each caller: one to push, and one to receive and ack.
type natsPeer struct {
	producers, consumers []jetstream.JetStream
	next                 atomic.Int64
}

func openNats() (*natsPeer, error) {
	peer := &natsPeer{}
	for range peer.callers() {
		for _, connections := range []*[]jetstream.JetStream{&peer.producers, &peer.consumers} {
			connection, err := nats.Connect("nats://127.0.0.1:" + os.Getenv("PORT"))
			if err != nil {
				return nil, err
			}
			stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(peer.batch()))
			if err != nil {
				return nil, err
			}
			*connections = append(*connections, stream)
		}
	}
	_, err := peer.producers[0].CreateStream(context.Background(), jetstream.StreamConfig{
		Name:              natsStream,
		Subjects:          []string{natsWaiting + ".*", natsDue},
		Storage:           jetstream.FileStorage,
		Retention:         jetstream.WorkQueuePolicy,
		AllowMsgSchedules: true,
	})
	return peer, err
}

func (p *natsPeer) batch() int   { return told("BATCH", natsBatch) }
func (p *natsPeer) callers() int { return told("CALLERS", natsCallers) }

func (p *natsPeer) push(caller int, messages []message) error {
	stored := make([]jetstream.PubAckFuture, 0, len(messages))
	for _, message := range messages {
		msg := &nats.Msg{Subject: natsDue, Data: message.payload}
		if message.due > nowMs() {
			msg.Subject = fmt.Sprintf("%s.%d", natsWaiting, p.next.Add(1))
			// The client's own option, WithScheduleAt, drops the fraction of a second; the server reads it.
			due := time.UnixMilli(message.due).UTC().Format("2006-01-02T15:04:05.000Z07:00")
			msg.Header = nats.Header{"Nats-Schedule": {"@at " + due}, "Nats-Schedule-Target": {natsDue}}
		}
		future, err := p.producers[caller].PublishMsgAsync(msg, jetstream.WithStallWait(30*time.Second))
		if err != nil {
			return err
		}
		stored = append(stored, future)
	}
	for _, future := range stored {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		}
	}
	return nil
}

func (p *natsPeer) consume(tally *tally) error {
	_, err := p.consumers[0].CreateConsumer(context.Background(), natsStream, jetstream.ConsumerConfig{
		Durable:       natsStream,
		FilterSubject: natsDue,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       time.Minute,
		MaxAckPending: 4 * p.callers() * p.batch(),
	})
	if err != nil {
		return err
	}
	for _, stream := range p.consumers {
		consumer, err := stream.Consumer(context.Background(), natsStream, natsStream)
		if err != nil {
			return err
		}
		received := make(chan jetstream.Msg, p.batch())
		failed := jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { tally.fail(err) })
		_, err = consumer.Consume(func(msg jetstream.Msg) { received <- msg }, jetstream.PullMaxMessages(2*p.batch()), failed)
		if err != nil {
			return err
		}
		go func() { tally.fail(settle(received, p.batch(), tally)) }()
	}
	return nil
}

// settle acks messages in batches of what has come, up to so many. The server handles the acks of a connection in order and answers
// the last one of a batch, so all are done then.
func settle(received <-chan jetstream.Msg, size int, tally *tally) error {
	for {
		batch := []jetstream.Msg{<-received}
		for len(batch) < size && len(received) > 0 {
			batch = append(batch, <-received)
		}
		for _, msg := range batch {
			tally.received(msg.Data())
		}
		last := len(batch) - 1
		for _, msg := range batch[:last] {
			if err := msg.Ack(); err != nil {
				return err
			}
		}
		if err := batch[last].DoubleAck(context.Background()); err != nil {
			return err
		}
		tally.settled(len(batch))
	}
}
