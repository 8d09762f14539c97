package dwell

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// gatherMax is how long at most a batch gathers while another one of its topic is under way.
const gatherMax = 20 * time.Millisecond

// ProducerOption is an option of a producer.
type ProducerOption func(*Producer)

// Linger is how long a push waits for others, so that they travel together. By default a push waits only while another batch of its topic
// is under way, up to 20 ms, and pushes gather then.
func Linger(d time.Duration) ProducerOption { return func(p *Producer) { p.linger = d } }

// BatchSize is how many messages a batch has at most, 1 to 1,000. Default 1,000. A batch also has at most 7 MiB.
func BatchSize(n int) ProducerOption { return func(p *Producer) { p.batchSize = n } }

// Buffer is how many messages may wait for their answers. A further push waits. Default 10,000.
func Buffer(messages int) ProducerOption { return func(p *Producer) { p.buffer = messages } }

// BufferBytes is how many bytes these messages may have. Default 32 MiB.
func BufferBytes(n int) ProducerOption { return func(p *Producer) { p.bufferBytes = n } }

// AtOnce is how many batches may be under way at the same time. Default 4. Only with 1 are the messages of one goroutine stored in order.
func AtOnce(batches int) ProducerOption { return func(p *Producer) { p.atOnce = batches } }

// Producer pushes the messages of many callers in batches. Each caller gets the answer to its own message. It may be used by many
// goroutines. A batch is repeated for RetryFor of the client.
type Producer struct {
	client                                 *Client
	linger                                 time.Duration
	batchSize, buffer, bufferBytes, atOnce int
	refused                                error

	mutex sync.Mutex
	// changed is closed, and another one made, when there is room in the buffer, and when the producer is closed.
	changed chan struct{}
	// waiting are the pushes that are not sent yet, for each topic in their order.
	waiting map[string][]*Pending
	// held and heldBytes are all pushes that are not answered yet.
	held, heldBytes int
	// underWay are the batches without an answer, each with its topic.
	underWay map[chan struct{}]string
	// flushes is how many callers wait for everything to be sent: then nothing lingers.
	flushes  int
	isClosed bool
	timer    *time.Timer
}

// Pending is a push whose answer is not there yet.
type Pending struct {
	producer *Producer
	topic    string
	id       string
	body     []byte
	since    time.Time
	isSent   bool
	done     chan struct{}
	result   PushResult
	err      error
}

// NewProducer creates a producer. Close it at the end. If an option cannot be, each push returns an ArgumentError.
func NewProducer(c *Client, opts ...ProducerOption) *Producer {
	p := &Producer{
		client: c, batchSize: batchMessages, buffer: 10_000, bufferBytes: 32 << 20, atOnce: 4,
		changed: make(chan struct{}), waiting: map[string][]*Pending{}, underWay: map[chan struct{}]string{},
	}
	for _, option := range opts {
		option(p)
	}
	switch {
	case p.batchSize < 1 || p.batchSize > batchMessages:
		p.refused = wrong("BatchSize", fmt.Sprintf("is %d, and has to be 1 to %d", p.batchSize, batchMessages))
	case p.buffer < 1 || p.bufferBytes < 1 || p.atOnce < 1:
		p.refused = wrong("Buffer, BufferBytes and AtOnce", "have to be at least 1")
	default:
		p.refused = notNegative("Linger", p.linger)
	}
	return p
}

// Push pushes a message, and returns when it is answered. If the context ends before the message is sent, it is not sent; if it
// ends later, the message may be stored.
func (p *Producer) Push(ctx context.Context, topic string, m NewMessage) (PushResult, error) {
	pending, err := p.PushAsync(ctx, topic, m)
	if err != nil {
		return PushResult{}, err
	}
	return pending.Wait(ctx)
}

// PushAsync takes a message to be pushed. It waits only while the buffer is full, until the context ends. The answer is that of Wait.
func (p *Producer) PushAsync(ctx context.Context, topic string, m NewMessage) (*Pending, error) {
	if p.refused != nil {
		return nil, p.refused
	}
	if err := named("topic", topic); err != nil {
		return nil, err
	}
	if m.ID == "" {
		m.ID = newULID()
	}
	body, err := m.encode(p.client.trace(ctx))
	if err != nil {
		return nil, err
	}
	pending := &Pending{producer: p, topic: topic, id: m.ID, body: body, done: make(chan struct{})}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for {
		switch {
		case p.isClosed:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, p.client.transport.ended(ctx, nil)
		case p.held == 0 || p.held < p.buffer && p.heldBytes+len(body) <= p.bufferBytes:
			p.held++
			p.heldBytes += len(body)
			pending.since = time.Now()
			p.waiting[topic] = append(p.waiting[topic], pending)
			p.dispatch()
			return pending, nil
		}
		p.await(ctx)
	}
}

// await waits for a change, or for the end of the context. It unlocks the mutex meanwhile.
func (p *Producer) await(ctx context.Context) {
	changed := p.changed
	p.mutex.Unlock()
	defer p.mutex.Lock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// Done is closed when the answer is there.
func (f *Pending) Done() <-chan struct{} { return f.done }

// ID is the id of the message.
func (f *Pending) ID() string { return f.id }

// Wait returns the answer. If the context ends before the message is sent, it is not sent.
func (f *Pending) Wait(ctx context.Context) (PushResult, error) {
	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
	}
	err := f.producer.client.transport.ended(ctx, nil)
	f.producer.withdraw(f, err)
	return PushResult{}, err
}

// withdraw takes back a push that is not sent yet.
func (p *Producer) withdraw(f *Pending, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if f.isSent {
		return
	}
	waiting := p.waiting[f.topic]
	for n, other := range waiting {
		if other == f {
			p.waiting[f.topic] = append(waiting[:n:n], waiting[n+1:]...)
			f.isSent = true
			p.answer(f, PushResult{}, err)
			p.ring()
			return
		}
	}
}

// Flush waits until everything that was pushed before is answered. A push that was refused is no error of Flush.
func (p *Producer) Flush(ctx context.Context) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.flushes++
	defer func() { p.flushes-- }()
	var before []<-chan struct{}
	for _, waiting := range p.waiting {
		for _, pending := range waiting {
			before = append(before, pending.done)
		}
	}
	for batch := range p.underWay {
		before = append(before, batch)
	}
	p.dispatch()
	p.mutex.Unlock()
	defer p.mutex.Lock()
	for _, done := range before {
		select {
		case <-done:
		case <-ctx.Done():
			return p.client.transport.ended(ctx, nil)
		}
	}
	return nil
}

// Close refuses further pushes, and waits until those before are answered. The client stays open.
func (p *Producer) Close(ctx context.Context) error {
	p.mutex.Lock()
	p.isClosed = true
	p.ring()
	p.mutex.Unlock()
	return p.Flush(ctx)
}

func (p *Producer) ring() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// dispatch sends what has waited long enough, the oldest first, while batches may begin.
func (p *Producer) dispatch() {
	for len(p.underWay) < p.atOnce {
		topic, due := p.next()
		if topic == "" {
			return
		}
		if wait := time.Until(due); wait > 0 {
			p.wake(wait)
			return
		}
		batch := p.take(topic)
		done := make(chan struct{})
		p.underWay[done] = topic
		go func() {
			p.send(topic, batch)
			// Callers that have their answers push again, and these messages go together.
			runtime.Gosched()
			p.mutex.Lock()
			defer p.mutex.Unlock()
			delete(p.underWay, done)
			close(done)
			p.dispatch()
		}()
	}
}

// next is the topic whose batch is to be sent next, and when.
func (p *Producer) next() (topic string, due time.Time) {
	for name, waiting := range p.waiting {
		if len(waiting) == 0 {
			delete(p.waiting, name)
			continue
		}
		at := waiting[0].since
		if !p.isFull(waiting) && p.flushes == 0 && !p.isClosed {
			at = at.Add(p.gathers(name))
		}
		if topic == "" || at.Before(due) {
			topic, due = name, at
		}
	}
	return topic, due
}

// gathers is how long a batch of a topic gathers that is not full.
func (p *Producer) gathers(topic string) time.Duration {
	for _, other := range p.underWay {
		if other == topic {
			return max(p.linger, gatherMax)
		}
	}
	return p.linger
}

// isFull reports whether a batch has all that it can have.
func (p *Producer) isFull(waiting []*Pending) bool {
	return len(waiting) >= p.batchSize || p.fitting(waiting) < len(waiting)
}

// fitting is how many of these fit in one batch.
func (p *Producer) fitting(waiting []*Pending) (count int) {
	size := 0
	for count < min(len(waiting), p.batchSize) && (count == 0 || size+len(waiting[count].body) < batchBytes) {
		size += len(waiting[count].body) + 1
		count++
	}
	return count
}

// wake dispatches again after a time.
func (p *Producer) wake(wait time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(wait, func() {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			p.dispatch()
		})
		return
	}
	p.timer.Reset(wait)
}

func (p *Producer) take(topic string) []*Pending {
	waiting := p.waiting[topic]
	count := p.fitting(waiting)
	batch := waiting[:count:count]
	p.waiting[topic] = waiting[count:]
	for _, pending := range batch {
		pending.isSent = true
	}
	return batch
}

// answer gives a push its answer.
func (p *Producer) answer(f *Pending, result PushResult, err error) {
	f.result, f.err = result, err
	p.held--
	p.heldBytes -= len(f.body)
	f.body = nil
	close(f.done)
}

// answers gives pushes their answers, and room to others.
func (p *Producer) answers(batch []*Pending, answer func(n int) (PushResult, error)) {
	if len(batch) == 0 {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for n, pending := range batch {
		result, err := answer(n)
		p.answer(pending, result, err)
	}
	p.ring()
}

// send sends a batch until each of its messages has an answer: those that may be accepted later are sent again until RetryFor is
// over, and those beside an invalid one at once.
func (p *Producer) send(topic string, batch []*Pending) {
	retryFor := p.client.transport.retryFor
	until := time.Now().Add(retryFor)
	for tries := 0; len(batch) > 0; {
		bodies := make([][]byte, len(batch))
		for n, pending := range batch {
			bodies[n] = pending.body
		}
		results, err := p.client.sendBatch(context.Background(), topic, bodies, nil, max(0, min(retryFor, time.Until(until))))
		if err != nil {
			if batch = p.refuse(batch, err); batch == nil {
				return
			}
			continue
		}
		wait := backoff(tries, 50*time.Millisecond, 2*time.Second)
		isLast := time.Now().Add(wait).After(until)
		var again, final []*Pending
		var finals []PushResult
		for n, result := range results {
			if result.mayPass() && !isLast {
				again = append(again, batch[n])
				continue
			}
			final, finals = append(final, batch[n]), append(finals, result)
		}
		p.answers(final, func(n int) (PushResult, error) { return finals[n], finals[n].failure(p.client.transport.server) })
		if batch = again; len(batch) > 0 {
			time.Sleep(wait)
			tries++
		}
	}
}

// refuse gives an error to the messages that it is about, and returns the others: those that it names as invalid, or all.
func (p *Producer) refuse(batch []*Pending, err error) (others []*Pending) {
	named := map[int]*Error{}
	var refused *Error
	if errors.As(err, &refused) && !refused.unavailable {
		named = refused.ofMessages(len(batch))
	}
	if len(named) == 0 {
		p.answers(batch, func(int) (PushResult, error) { return PushResult{}, err })
		return nil
	}
	var wrong []*Pending
	var own []*Error
	for n, pending := range batch {
		if refused, ok := named[n]; ok {
			wrong, own = append(wrong, pending), append(own, refused)
		} else {
			others = append(others, pending)
		}
	}
	p.answers(wrong, func(n int) (PushResult, error) { return PushResult{}, own[n] })
	return others
}
