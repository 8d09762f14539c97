package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// gathered is how many decisions a request has at most.
const gathered = 100

type verdict struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
}

func (v verdict) isSuccess() bool {
	switch v.Status {
	case "acked", "nacked", "buried", "released", "extended", "pending":
		return true
	}
	return false
}

// settleLoop sends decisions until the worker is over. One request is under way at a time, and decisions gather meanwhile.
func (w *Worker) settleLoop(ctx context.Context) {
	for {
		w.mutex.Lock()
		batch, next := w.gathered()
		for len(batch) == 0 && !w.isOver {
			w.await(next)
			batch, next = w.gathered()
		}
		w.mutex.Unlock()
		if len(batch) == 0 {
			return
		}
		verb, visibility := batch[0].verb, batch[0].visibility
		receipts := make([]any, len(batch))
		for n, s := range batch {
			visibility = min(visibility, s.visibility)
			receipts[n] = s.delivery.Receipt
			if verb == "nack" {
				receipts[n] = s.fields
			}
		}
		verdicts, err := w.verdicts(ctx, verb, visibility, settlement{Receipts: receipts})
		failed := "failed"
		if err != nil {
			w.log.Warn("dwell: settlement failed", "verb", verb, "deliveries", len(batch), "error", err)
			switch {
			case isGone(err):
				failed = "unknown"
			case isForGood(err):
				failed = "refused"
			}
		}
		w.update(func() {
			for n, s := range batch {
				if failed == "refused" && len(batch) > 1 {
					s.isAlone = true
					continue
				}
				v := verdict{Status: failed}
				if n < len(verdicts) {
					v = verdicts[n]
				}
				w.settled(s, v)
			}
		})
	}
}

// gathered returns the decisions to send now: one verb, those that were made first. If there are none it returns when to look again.
func (w *Worker) gathered() (batch []*slot, next time.Time) {
	now, next := time.Now(), never()
	var ready []*slot
	for _, s := range w.slots {
		switch {
		case s.verb == "":
		case s.notBefore.After(now):
			next = earlier(next, s.notBefore)
		default:
			ready = append(ready, s)
		}
	}
	if len(ready) == 0 {
		return nil, next
	}
	slices.SortFunc(ready, func(a, b *slot) int { return a.decidedAt.Compare(b.decidedAt) })
	if ready[0].isAlone {
		return ready[:1], next
	}
	for _, s := range ready {
		if s.verb == ready[0].verb && !s.isAlone && len(batch) < gathered {
			batch = append(batch, s)
		}
	}
	return batch, next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// settlement is a request with receipts.
type settlement struct {
	Receipts   []any   `json:"receipts"`
	Visibility *millis `json:"visibility_timeout_ms,omitempty"`
}

// verdicts asks for the verdicts. A request that takes long is given up, while there is time for another one.
func (w *Worker) verdicts(ctx context.Context, verb string, visibility time.Duration, body settlement) ([]verdict, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Results []verdict `json:"results"`
	}
	request := call{method: http.MethodPost, path: w.path + "/" + verb, body: data, timeout: max(time.Second, visibility/3)}
	err = w.client.transport.do(ctx, request, &answer)
	return answer.Results, err
}

func (w *Worker) settled(s *slot, v verdict) {
	d := s.delivery
	switch {
	case v.isSuccess() && s.verb == "ack":
		w.event(EventAcked, &w.stats.Acked, d)
	case v.isSuccess() && s.verb == "release":
		w.event(EventReleased, &w.stats.Released, d)
	case v.Status == "buried", v.isSuccess() && s.fields.Bury:
		// The nack of the last attempt is answered with "buried".
		w.event(EventBuried, &w.stats.Buried, d)
	case v.isSuccess():
		w.event(EventNacked, &w.stats.Nacked, d)
	case v.Status == "refused":
		w.event(EventSettleFailures, &w.stats.SettleFailures, d)
		w.log.Warn("dwell: refused: it may be delivered again", "verb", s.verb, "id", d.ID)
	case v.Status == "unreachable" || v.Status == "failed":
		w.event(EventSettleFailures, &w.stats.SettleFailures, d)
		if now := time.Now(); now.Before(s.deadline) {
			s.notBefore = now.Add(backoff(s.tries, 50*time.Millisecond, 2*time.Second))
			s.tries++
			return
		}
		w.log.Warn("dwell: not answered before the deadline: it may be delivered again", "verb", s.verb, "id", d.ID)
	default:
		w.event(EventStale, &w.stats.Stale, d)
		w.log.Warn("dwell: settled too late", "verb", s.verb, "id", d.ID, "reason", cmp.Or(v.Reason, v.Status))
	}
	w.event(EventSettled, nil, d)
	delete(w.slots, d.Receipt)
}
