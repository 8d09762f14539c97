package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Decisions are gathered for this long, or until there are this many.
const (
	gatherFor = 5 * time.Millisecond
	gathered  = 100
)

type verdict struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
}

func (v verdict) isSuccess() bool {
	switch v.Status {
	case "acked", "nacked", "buried", "extended", "pending":
		return true
	}
	return false
}

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
		verb := batch[0].verb
		receipts := make([]any, len(batch))
		for n, s := range batch {
			receipts[n] = s.delivery.Receipt
			if verb == "nack" {
				fields := map[string]any{"receipt": s.delivery.Receipt}
				for name, value := range s.fields {
					fields[name] = value
				}
				receipts[n] = fields
			}
		}
		verdicts, err := w.verdicts(ctx, verb, map[string]any{"receipts": receipts})
		if err != nil {
			w.log.Warn("dwell: settlement failed", "verb", verb, "deliveries", len(batch), "error", err)
		}
		w.update(func() {
			for n, s := range batch {
				v := verdict{Status: "failed"}
				if n < len(verdicts) {
					v = verdicts[n]
				}
				w.settled(s, v)
			}
		})
	}
}

// gathered returns the decisions to send now: one verb, once enough are gathered, or nothing more can be waited for. If there are
// none it returns when to look again.
func (w *Worker) gathered() (batch []*slot, next time.Time) {
	now, next := time.Now(), never()
	var ready []*slot
	decided, oldest := 0, now
	for _, s := range w.slots {
		if s.verb == "" {
			continue
		}
		decided++
		if s.notBefore.After(now) {
			next = earlier(next, s.notBefore)
			continue
		}
		ready = append(ready, s)
		oldest = earlier(oldest, s.decidedAt)
	}
	if len(ready) == 0 {
		return nil, next
	}
	if len(ready) < gathered && decided < len(w.slots) && oldest.Add(gatherFor).After(now) {
		return nil, earlier(next, oldest.Add(gatherFor))
	}
	for _, s := range ready {
		if s.verb == ready[0].verb && len(batch) < gathered {
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

func (w *Worker) verdicts(ctx context.Context, verb string, body map[string]any) ([]verdict, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Results []verdict `json:"results"`
	}
	request := call{method: http.MethodPost, path: w.path + "/" + verb, body: data, timeout: max(time.Second, w.visibility/3)}
	err = w.client.transport.do(ctx, request, &answer)
	return answer.Results, err
}

func (w *Worker) settled(s *slot, v verdict) {
	d := s.delivery
	switch {
	case v.isSuccess() && s.verb == "ack":
		w.event("acked", &w.stats.Acked, d)
	case v.Status == "buried", v.isSuccess() && s.fields["bury"] == true:
		// The nack of the last attempt is answered with "buried".
		w.event("buried", &w.stats.Buried, d)
	case v.isSuccess():
		w.event("nacked", &w.stats.Nacked, d)
	case v.Status == "unreachable" || v.Status == "failed":
		w.event("settle_failures", &w.stats.SettleFailures, d)
		if now := time.Now(); now.Before(s.deadline) {
			s.notBefore = now.Add(backoff(s.tries, 50*time.Millisecond, 2*time.Second))
			s.tries++
			return
		}
		w.log.Warn("dwell: not answered before the deadline: it may be delivered again", "verb", s.verb, "id", d.ID)
	default:
		w.event("stale", &w.stats.Stale, d)
		w.log.Warn("dwell: settled too late", "verb", s.verb, "id", d.ID, "reason", cmp.Or(v.Reason, v.Status))
	}
	w.event("settled", nil, d)
	delete(w.slots, d.Receipt)
}

func (w *Worker) extendLoop(ctx context.Context) {
	for {
		w.mutex.Lock()
		due, next := w.due()
		for len(due) == 0 && !w.isOver {
			w.await(next)
			due, next = w.due()
		}
		isOver := w.isOver
		w.mutex.Unlock()
		if isOver {
			return
		}
		for len(due) > 0 {
			n := min(len(due), 1000)
			w.extend(ctx, due[:n], w.visibility)
			due = due[n:]
		}
	}
}

// due returns the deliveries whose deadlines have to move now, or when to look again. Those whose deadline passed are lost.
func (w *Worker) due() (due []*slot, next time.Time) {
	now, next := time.Now(), never()
	for _, s := range w.slots {
		switch {
		case s.verb != "" || s.isLost:
		case !now.Before(s.deadline):
			w.lose(s)
		case !s.extendAt.Before(s.extendUntil):
			next = earlier(next, s.deadline)
		case now.Before(s.extendAt):
			next = earlier(next, s.extendAt)
		case now.Before(s.extendUntil):
			due = append(due, s)
		default:
			next = earlier(next, s.deadline)
		}
	}
	return due, next
}

// extend moves deadlines in one call. It reports whether all deliveries still belong to this worker.
func (w *Worker) extend(ctx context.Context, slots []*slot, visibility time.Duration) bool {
	asked := time.Now()
	receipts := make([]string, len(slots))
	for n, s := range slots {
		receipts[n] = s.delivery.Receipt
	}
	verdicts, err := w.verdicts(ctx, "extend", map[string]any{"receipts": receipts, "visibility_timeout_ms": milliseconds(visibility)})
	if err != nil {
		w.log.Warn("dwell: extend failed", "deliveries", len(slots), "error", err)
	}
	isOurs := true
	w.update(func() {
		for n, s := range slots {
			v := verdict{Status: "unreachable"}
			if n < len(verdicts) {
				v = verdicts[n]
			}
			switch {
			case v.isSuccess():
				s.deadline, s.extendAt = asked.Add(visibility), asked.Add(visibility/3)
				w.event("extended", &w.stats.Extended, s.delivery)
			case v.Status == "unreachable":
				s.extendAt = time.Now().Add(min(time.Second, w.visibility/10))
			case s.verb == "":
				w.lose(s)
			}
			isOurs = isOurs && !s.isLost
		}
	})
	return isOurs
}

func (w *Worker) lose(s *slot) {
	if !s.isLost {
		s.isLost = true
		w.log.Warn("dwell: delivery lost: another consumer may have it", "id", s.delivery.ID)
		w.event("lost", &w.stats.Lost, s.delivery)
		s.cancel(ErrLost)
	}
}
