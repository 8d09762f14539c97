package dwell

import (
	"context"
	"errors"
	"net/http"
	"time"
)

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
			first := due[0]
			var same, rest []*slot
			for _, s := range due {
				// Another visibility timeout needs another request.
				isOther := s.visibility != first.visibility || s.isExtendedAlone || first.isExtendedAlone || len(same) == batchMessages
				if s != first && isOther {
					rest = append(rest, s)
				} else {
					same = append(same, s)
				}
			}
			if err := w.extend(ctx, same, first.visibility); isForGood(err) {
				w.endExtending(same)
			}
			due = rest
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

// extend moves deadlines in one call. The error is ErrLost if a delivery no longer belongs to this worker, and else that of the call.
func (w *Worker) extend(ctx context.Context, slots []*slot, visibility time.Duration) error {
	asked := time.Now()
	receipts := make([]any, len(slots))
	for n, s := range slots {
		receipts[n] = s.delivery.Receipt
	}
	verdicts, err := w.verdicts(ctx, "extend", slots[0].visibility, settlement{receipts, ms(visibility)})
	if err != nil {
		w.log.Warn("dwell: extend failed", "topic", w.topic, "group", w.group, "deliveries", len(slots), "error", err)
	}
	others := verdict{Status: "unreachable"}
	switch {
	case isGone(err):
		others.Status = "unknown"
	case isForGood(err):
		others.Status = "refused"
	}
	w.update(func() {
		for n, s := range slots {
			v := others
			if n < len(verdicts) {
				v = verdicts[n]
			}
			switch {
			case v.isSuccess():
				s.deadline, s.extendAt, s.isExtendedAlone = asked.Add(visibility), asked.Add(visibility/3), false
				w.event(EventExtended, &w.stats.Extended, s.delivery)
			case v.Status == "unreachable":
				s.extendAt = time.Now().Add(min(time.Second, s.visibility/10))
			case v.Status == "refused":
				// A handler may have asked for a wrong time, so the worker keeps its own.
			case s.verb == "":
				w.lose(s)
			}
			if s.isLost {
				err = ErrLost
			}
		}
	})
	return err
}

// endExtending extends a delivery no more, since the broker would refuse it again. If it refused several together, one of them may be
// wrong, so each is asked about in a separate request.
func (w *Worker) endExtending(slots []*slot) {
	w.update(func() {
		for _, s := range slots {
			if len(slots) > 1 {
				s.isExtendedAlone = true
				continue
			}
			s.extendUntil = time.Time{}
			w.log.Warn("dwell: extend refused: the delivery is lost at its deadline", "id", s.delivery.ID)
		}
	})
}

// isForGood reports whether the broker would refuse a request with receipts again.
func isForGood(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && !isPatient(refused)
}

// isGone reports whether the topic, the group or the only receipt does not exist: one that is unknown among others has a verdict. A 404
// without a type is not of a broker.
func isGone(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.Type != ""
}

func (w *Worker) lose(s *slot) {
	if !s.isLost {
		s.isLost = true
		w.log.Warn("dwell: delivery lost: another consumer may have it", "id", s.delivery.ID)
		w.event(EventLost, &w.stats.Lost, s.delivery)
		s.cancel(ErrLost)
	}
}
