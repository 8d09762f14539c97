package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const payloadBytes = 100

// peer is what a product can do. A caller is one of its producers, from 0 on.
type peer interface {
	// batch is the number of messages that a caller pushes in one call.
	batch() int
	// callers is the number of producers that push at the same time.
	callers() int
	// push returns when every message is stored.
	push(caller int, messages []message) error
	// consume starts the consumers, which report to the tally, and returns.
	consume(tally *tally) error
}

// message is one message to push; its due time is in ms since 1970.
type message struct {
	due     int64
	payload []byte
}

// tally counts what the consumers report.
type tally struct {
	lock sync.Mutex
	// From the due time to the hand-over, ms, of each delivery.
	lateness []int64
	numbers  map[int64]struct{}
	acked    int
	// When the last of the acks was answered, ms since 1970.
	ended int64

	want   int
	closed chan struct{}
	failed chan error
}

func newTally(want int) *tally {
	return &tally{numbers: map[int64]struct{}{}, want: want, closed: make(chan struct{}), failed: make(chan error, 1)}
}

// received records one delivery.
func (t *tally) received(payload []byte) {
	now := nowMs()
	var due, number int64
	if _, err := fmt.Sscan(string(payload), &due, &number); err != nil {
		t.fail(err)
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.lateness = append(t.lateness, now-due)
	t.numbers[number] = struct{}{}
}

// settled records acks that were answered.
func (t *tally) settled(count int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	isComplete := t.acked < t.want && t.acked+count >= t.want
	t.acked += count
	if isComplete {
		t.ended = nowMs()
		close(t.closed)
	}
}

func (t *tally) fail(err error) {
	select {
	case t.failed <- err:
	default:
	}
}

// wait returns when as many acks were answered as wanted.
func (t *tally) wait() error {
	select {
	case <-t.closed:
		return nil
	case err := <-t.failed:
		return err
	}
}

// print writes the result of a measure, with the checks, as one line of JSON.
func (t *tally) print(name string, value any) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	early := 0
	for _, late := range t.lateness {
		if late < 0 {
			early++
		}
	}
	distinct := len(t.numbers)
	return printLine(map[string]any{name: value, "distinct": distinct, "repeated": len(t.lateness) - distinct, "early": early})
}

func printLine(result map[string]any) error {
	return json.NewEncoder(os.Stdout).Encode(result)
}

func (t *tally) percentiles() map[string]int64 {
	t.lock.Lock()
	defer t.lock.Unlock()
	slices.Sort(t.lateness)
	at := func(permille int) int64 {
		return t.lateness[max(0, (len(t.lateness)*permille+999)/1_000-1)]
	}
	return map[string]int64{"p50": at(500), "p99": at(990), "p99.9": at(999)}
}

// told returns a number of the environment, or what the peer prefers where it is not set.
func told(name string, preferred int) int {
	number, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return preferred
	}
	return number
}

// measure runs one measure and prints its result.
func measure(peer peer, name string) error {
	var numbers [3]int64
	for at, key := range []string{"COUNT", "LEAD_MS", "RATE"} {
		number, err := strconv.ParseInt(os.Getenv(key), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		numbers[at] = number
	}
	count, lead, rate := int(numbers[0]), numbers[1], numbers[2]
	switch name {
	case "push":
		inAnHour := nowMs() + 3_600_000
		took, err := push(peer, count, func(int64) int64 { return inAnHour })
		if err != nil {
			return err
		}
		return printLine(map[string]any{"push_per_s": math.Round(float64(count) / took.Seconds())})
	case "drain":
		now := nowMs()
		if _, err := push(peer, count, func(int64) int64 { return now }); err != nil {
			return err
		}
		began, tally := nowMs(), newTally(count)
		if err := peer.consume(tally); err != nil {
			return err
		}
		if err := tally.wait(); err != nil {
			return err
		}
		return tally.print("drain_per_s", int64(count)*1_000/max(1, tally.ended-began))
	case "lateness":
		tally, _, err := ahead(peer, count, lead, func(number int64) int64 { return number * 1_000 / rate })
		if err != nil {
			return err
		}
		return tally.print("lateness_ms", tally.percentiles())
	case "burst":
		tally, due, err := ahead(peer, count, lead, func(int64) int64 { return 0 })
		if err != nil {
			return err
		}
		return tally.print("burst_s", float64(tally.ended-due)/1_000)
	case "idle":
		tally := newTally(1)
		if err := peer.consume(tally); err != nil {
			return err
		}
		if _, err := push(peer, 1, func(int64) int64 { return 0 }); err != nil {
			return err
		}
		if err := tally.wait(); err != nil {
			return err
		}
		fmt.Println("ready")
		return <-tally.failed
	}
	return fmt.Errorf("no measure %q", name)
}

// ahead pushes everything before the first message is due, while the consumers wait, and returns when all are acked.
func ahead(peer peer, count int, lead int64, after func(int64) int64) (*tally, int64, error) {
	tally := newTally(count)
	if err := peer.consume(tally); err != nil {
		return nil, 0, err
	}
	first := nowMs() + lead
	if _, err := push(peer, count, func(number int64) int64 { return first + after(number) }); err != nil {
		return nil, 0, err
	}
	if nowMs() >= first {
		return nil, 0, errors.New("the pushes took longer than the lead")
	}
	return tally, first, tally.wait()
}

// push pushes messages with the due times that `due` returns for their numbers. The payload has both.
func push(peer peer, count int, due func(int64) int64) (time.Duration, error) {
	began, batch := time.Now(), peer.batch()
	var next atomic.Int64
	failed := make(chan error, peer.callers())
	for caller := range peer.callers() {
		go func() {
			for {
				from := int(next.Add(int64(batch))) - batch
				if from >= count {
					failed <- nil
					return
				}
				messages := make([]message, 0, batch)
				for number := int64(from); number < int64(min(from+batch, count)); number++ {
					at := due(number)
					payload := fmt.Appendf(nil, "%-*s", payloadBytes, fmt.Sprintf("%d %d", at, number))
					messages = append(messages, message{at, payload})
				}
				if err := peer.push(caller, messages); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for range peer.callers() {
		if err := <-failed; err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func nowMs() int64 {
	return time.Now().UnixMilli()
}
