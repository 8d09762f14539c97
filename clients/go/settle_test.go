package dwell

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// working is a worker with these deliveries, whose handlers run.
func working(t *testing.T, ids ...string) *Worker {
	t.Helper()
	client, err := New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	w := NewWorker(client, "orders")
	for _, id := range ids {
		w.slots[id] = &slot{delivery: &Delivery{ID: id, Receipt: id}, visibility: time.Minute}
	}
	return w
}

// sends fails unless the next request has this verb and these receipts.
func (w *Worker) sends(t *testing.T, verb string, receipts ...string) {
	t.Helper()
	batch, _ := w.gathered()
	var found []string
	for _, s := range batch {
		if s.verb != verb {
			t.Errorf("%s of %s, expected %s", s.verb, s.delivery.Receipt, verb)
		}
		found = append(found, s.delivery.Receipt)
	}
	if !slices.Equal(found, receipts) {
		t.Errorf("%s of %v, expected %v", verb, found, receipts)
	}
}

func TestADecisionWaitsForNoOther(t *testing.T) {
	w := working(t, "a", "b")
	w.sends(t, "ack")
	w.decide(w.slots["a"], "ack", nack{})
	w.sends(t, "ack", "a")
}

func TestARequestHasOneVerbAndWhatWasDecidedFirst(t *testing.T) {
	w := working(t, "a", "b", "c", "d")
	w.decide(w.slots["c"], "release", nack{})
	w.decide(w.slots["b"], "ack", nack{})
	w.decide(w.slots["a"], "release", nack{})
	w.sends(t, "release", "c", "a")
}

func TestARequestHasAtMostAHundredDecisions(t *testing.T) {
	var ids []string
	for n := range 150 {
		ids = append(ids, fmt.Sprintf("%03d", n))
	}
	w := working(t, ids...)
	for _, id := range ids {
		w.decide(w.slots[id], "ack", nack{})
	}
	w.sends(t, "ack", ids[:100]...)
}
