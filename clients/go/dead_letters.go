package dwell

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Selection says which dead letters: those of IDs, all that match the other fields, or with All all.
type Selection struct {
	// IDs is not given together with another field.
	IDs []string
	// All is all that are dead now.
	All    bool
	Reason DeathReason
	// OlderThan and YoungerThan limit the age.
	OlderThan, YoungerThan time.Duration
	// Text is in the last error or in the payload.
	Text string
	// Limit is how many dead letters to change at most; 0 is all.
	Limit int64
	// Rate is how many to change in a second at most; 0 is without a limit.
	Rate int
	// DryRun only counts them. Not together with IDs.
	DryRun bool
}

type wireSelection struct {
	IDs         []string    `json:"ids,omitempty"`
	All         bool        `json:"all,omitempty"`
	Reason      DeathReason `json:"reason,omitempty"`
	OlderThan   *millis     `json:"older_than_ms,omitempty"`
	YoungerThan *millis     `json:"younger_than_ms,omitempty"`
	Text        string      `json:"text,omitempty"`
	Limit       int64       `json:"limit,omitempty"`
	Rate        int         `json:"rate,omitempty"`
	DryRun      bool        `json:"dry_run,omitempty"`
	Cursor      string      `json:"cursor,omitempty"`
}

func (s *Selection) check() error {
	isNarrow := s.Reason != "" || s.OlderThan != 0 || s.YoungerThan != 0 || s.Text != ""
	switch {
	case len(s.IDs) > 0 && (s.All || isNarrow || s.Limit != 0 || s.Rate != 0 || s.DryRun):
		return wrong("IDs", "is given together with another field")
	case len(s.IDs) == 0 && !s.All && !isNarrow:
		return wrong("Selection", "is empty: give IDs, a field that narrows it, or All")
	case s.All && isNarrow:
		return wrong("All", "is given together with a field that narrows it")
	case s.Limit < 0 || s.Rate < 0:
		return wrong("Limit", "or Rate is negative")
	}
	for _, id := range s.IDs {
		if err := named("IDs", id); err != nil {
			return err
		}
	}
	return cmp.Or(notNegative("OlderThan", s.OlderThan), notNegative("YoungerThan", s.YoungerThan))
}

// DeadLetterQuery says which dead letters to list. The zero value lists all.
type DeadLetterQuery struct {
	Reason DeathReason
	// OlderThan and YoungerThan limit the age.
	OlderThan, YoungerThan time.Duration
	// Text is in the last error or in the payload.
	Text string
	// Order is OrderPartition, OrderNewest or OrderOldest. Default OrderPartition.
	Order Order
	// PageSize is how many a request asks for, up to 1,000. Default 100.
	PageSize int
}

// DeadLetters lists the dead letters of a group, page by page. An error ends the list.
func (c *Client) DeadLetters(ctx context.Context, topic, group string, q DeadLetterQuery) iter.Seq2[Message, error] {
	query := url.Values{
		"reason": {string(q.Reason)}, "text": {q.Text}, "order": {string(q.Order)}, "limit": {number(q.PageSize)},
		"older_than_ms": {age(q.OlderThan)}, "younger_than_ms": {age(q.YoungerThan)},
	}
	bad := cmp.Or(named("topic", topic, "group", group), notNegative("OlderThan", q.OlderThan), notNegative("YoungerThan", q.YoungerThan))
	var page struct {
		DeadLetters []Message `json:"dead_letters"`
		cursor
	}
	list := pages(c, ctx, bad, pathOf(topic, "groups", group, "dead-letters"), query, &page, &page.DeadLetters, &page.cursor)
	return func(yield func(Message, error) bool) {
		list(func(m Message, err error) bool {
			m.State = StateDead
			return yield(m, err)
		})
	}
}

// age is an age as a parameter.
func age(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatInt(milliseconds(d), 10)
}

// Redriven is what a redrive did.
type Redriven struct {
	Redriven int64 `json:"redriven"`
	// Matching is how many it would change, with DryRun.
	Matching int64 `json:"matching,omitempty"`
}

// Redrive makes dead letters ready again. Their attempts start again at 1. With an error it returns what was done before.
func (c *Client) Redrive(ctx context.Context, topic, group string, which Selection) (sum Redriven, err error) {
	err = c.change(ctx, topic, group, "dead-letters/redrive", which, func(page *changed) { sum.Redriven += page.Redriven; sum.Matching += page.Matching })
	return sum, err
}

// PurgeDeadLetters deletes dead letters for good. With an error it returns what was done before.
func (c *Client) PurgeDeadLetters(ctx context.Context, topic, group string, which Selection) (sum Purged, err error) {
	err = c.change(ctx, topic, group, "dead-letters/purge", which, func(page *changed) { sum.Purged += page.Purged; sum.Matching += page.Matching })
	return sum, err
}

// changed is one answer of a redrive or a purge.
type changed struct {
	Redriven int64 `json:"redriven"`
	Purged   int64 `json:"purged"`
	Matching int64 `json:"matching"`
	cursor
}

// change changes dead letters until all are done. The next request asks for the rest of a limit.
func (c *Client) change(ctx context.Context, topic, group, verb string, which Selection, add func(*changed)) error {
	if err := which.check(); err != nil {
		return err
	}
	body := wireSelection{
		All: which.All, Reason: which.Reason, OlderThan: ms(which.OlderThan), YoungerThan: ms(which.YoungerThan), Text: which.Text,
		Limit: which.Limit, Rate: which.Rate, DryRun: which.DryRun,
	}
	ids := which.IDs
	for {
		count := min(len(ids), batchMessages)
		body.IDs, ids = ids[:count], ids[count:]
		var page changed
		if err := c.group(ctx, call{method: http.MethodPost}, topic, group, verb, body, &page); err != nil {
			return err
		}
		add(&page)
		body.Cursor = page.Next
		if body.Limit > 0 {
			body.Limit -= page.Redriven + page.Purged + page.Matching
			if body.Limit <= 0 {
				return nil
			}
		}
		if page.Next == "" && len(ids) == 0 {
			return nil
		}
	}
}
