package dwell

import (
	"context"
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
			// Another visibility timeout needs another request.
			visibility := due[0].visibility
			var same, rest []*slot
			for _, s := range due {
				if s.visibility == visibility && len(same) < batchMessages {
					same = append(same, s)
				} else {
					rest = append(rest, s)
				}
			}
			_ = w.extend(ctx, same, visibility)
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
	w.update(func() {
		for n, s := range slots {
			v := verdict{Status: "unreachable"}
			if n < len(verdicts) {
				v = verdicts[n]
			}
			switch {
			case v.isSuccess():
				s.deadline, s.extendAt = asked.Add(visibility), asked.Add(visibility/3)
				w.event(EventExtended, &w.stats.Extended, s.delivery)
			case v.Status == "unreachable":
				s.extendAt = time.Now().Add(min(time.Second, s.visibility/10))
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

func (w *Worker) lose(s *slot) {
	if !s.isLost {
		s.isLost = true
		w.log.Warn("dwell: delivery lost: another consumer may have it", "id", s.delivery.ID)
		w.event(EventLost, &w.stats.Lost, s.delivery)
		s.cancel(ErrLost)
	}
}
