package dwell

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// Calls for many messages make this many requests at the same time.
const manyAtOnce = 16

// GetOption is an option of Get and GetMany.
type GetOption func(*string)

// InGroup names the group whose state of the message is wanted. Default "default".
func InGroup(name string) GetOption { return func(group *string) { *group = name } }

// Get gets a message with its state in a group, without reserving it.
func (c *Client) Get(ctx context.Context, topic string, m Ref, opts ...GetOption) (result Message, err error) {
	group := "default"
	for _, option := range opts {
		option(&group)
	}
	if err := named("group", group); err != nil {
		return result, err
	}
	path, err := messagePath(topic, m, group)
	if err != nil {
		return result, err
	}
	err = c.produce(ctx, call{method: http.MethodGet, path: path}, &result)
	return result, err
}

// Result is the outcome of one of many messages: its value, or an error.
type Result[T any] struct {
	Ref   Ref
	Value T
	Err   error
}

// GetMany gets several messages. It returns a result for each, in order, and a ManyError if any failed.
func (c *Client) GetMany(ctx context.Context, topic string, messages []Ref, opts ...GetOption) ([]Result[Message], error) {
	return each(topic, messages, func(m Ref) (Message, error) { return c.Get(ctx, topic, m, opts...) })
}

// CancelMany cancels several messages. It returns a result for each, in order, and a ManyError if any failed.
func (c *Client) CancelMany(ctx context.Context, topic string, messages []Ref) ([]Result[Control], error) {
	return each(topic, messages, func(m Ref) (Control, error) { return c.Cancel(ctx, topic, m) })
}

// RescheduleMany gives several messages another due time. It returns a result for each, in order, and a ManyError if any failed.
func (c *Client) RescheduleMany(ctx context.Context, topic string, messages []Ref, r Reschedule) ([]Result[Control], error) {
	if _, err := r.encode(); err != nil {
		return nil, err
	}
	return each(topic, messages, func(m Ref) (Control, error) { return c.Reschedule(ctx, topic, m, r) })
}

// each makes a call for each message, some at the same time.
func each[T any](topic string, messages []Ref, one func(Ref) (T, error)) ([]Result[T], error) {
	for _, m := range messages {
		if _, err := messagePath(topic, m, ""); err != nil {
			return nil, err
		}
	}
	results := make([]Result[T], len(messages))
	places := make(chan struct{}, manyAtOnce)
	var running sync.WaitGroup
	for n, m := range messages {
		places <- struct{}{}
		running.Add(1)
		go func() {
			defer func() { <-places; running.Done() }()
			value, err := one(m)
			results[n] = Result[T]{m, value, err}
		}()
	}
	running.Wait()
	var failed many
	for n := range results {
		failed.add(results[n].Err)
	}
	return results, failed.error()
}

// ListQuery says which messages to list. The zero value lists those that no consumer has and that are not dead.
type ListQuery struct {
	State MessageState
	// Group is the group in whose state. Default "default".
	Group string
	// From and To limit the due times: from this time on, and before that one.
	From, To time.Time
	// Order is OrderPartition or OrderDue. Default OrderPartition.
	Order Order
	// PageSize is how many messages a request asks for, up to 1,000. Default 100.
	PageSize int
}

// List lists messages by state and due time, page by page. An error ends the list.
func (c *Client) List(ctx context.Context, topic string, q ListQuery) iter.Seq2[Message, error] {
	query := url.Values{
		"state": {string(q.State)}, "group": {q.Group}, "from": {atTime(q.From)}, "to": {atTime(q.To)}, "order": {string(q.Order)},
		"limit": {number(q.PageSize)},
	}
	var page struct {
		Messages []Message `json:"messages"`
		cursor
	}
	return pages(c, ctx, named("topic", topic), pathOf(topic, "messages"), query, &page, &page.Messages, &page.cursor)
}

// cursor is where the next page begins; empty at the end.
type cursor struct {
	Next string `json:"next_cursor"`
}

// number is a parameter that is absent if it is 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// pages yields the entries of all pages. Each answer is decoded into page, which has the entries and the cursor.
func pages[T any](c *Client, ctx context.Context, wrong error, path string, query url.Values, page any, entries *[]T, next *cursor) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		if wrong != nil {
			yield(zero, wrong)
			return
		}
		for at := ""; ; at = next.Next {
			*entries, *next = nil, cursor{}
			query.Set("cursor", at)
			if err := c.administer(ctx, call{method: http.MethodGet, path: withQuery(path, query)}, nil, page); err != nil {
				yield(zero, err)
				return
			}
			for _, entry := range *entries {
				if !yield(entry, nil) {
					return
				}
			}
			if next.Next == "" {
				return
			}
		}
	}
}

// Explained is why a message is not delivered yet.
type Explained struct {
	ID        string `json:"id"`
	Partition int    `json:"partition"`
	// Buffered: it is on the disk of the broker that answered.
	Buffered bool          `json:"buffered"`
	Groups   []GroupReason `json:"groups"`
}

// GroupReason is the reason of one group.
type GroupReason struct {
	Group  string     `json:"group"`
	Reason WaitReason `json:"reason"`
	// Detail is the same in a sentence.
	Detail string `json:"detail"`
	// Blocker is the id of the message that it is behind, the first of its key.
	Blocker string `json:"blocker,omitempty"`
	// Until is the latest time at which it no longer waits for this, if that is known.
	Until time.Time `json:"until"`
	// Owner is the broker that owns its partition, once it is due.
	Owner     string   `json:"owner,omitempty"`
	LastError *Failure `json:"last_error,omitempty"`
}

// Explain says for each group why a message is not delivered yet.
func (c *Client) Explain(ctx context.Context, topic string, m Ref) (result Explained, err error) {
	if err := named("topic", topic, "ID", m.ID); err != nil {
		return result, err
	}
	path := withQuery(pathOf(topic, "messages", m.ID, "explain"), url.Values{"key": {m.Key}})
	err = c.administer(ctx, call{method: http.MethodGet, path: path}, nil, &result)
	return result, err
}

// BulkChange is a bulk operation on the messages that are due in a window.
type BulkChange struct {
	Action BulkAction
	// By is by how much BulkPostpone and BulkAdvance move them: at least the length of the window.
	By time.Duration
	// From is the start of the window, and To its end, which is not part of it.
	From, To time.Time
	// OnProgress is called with the sums after each request, which takes some seconds.
	OnProgress func(BulkResult)
}

// BulkResult is what a bulk operation did.
type BulkResult struct {
	Changed int64 `json:"changed"`
	// PassedOver is how many stay as they were: a consumer has them, or they expire before the new due time.
	PassedOver int64 `json:"passed_over"`
}

// Bulk cancels, moves or parks the messages that are due in a window, until all are done. With an error it returns what was done
// before.
func (c *Client) Bulk(ctx context.Context, topic, group string, change BulkChange) (sum BulkResult, err error) {
	if err := cmp.Or(named("topic", topic, "group", group, "Action", string(change.Action)), window(change.From, change.To), notNegative("By", change.By)); err != nil {
		return sum, err
	}
	body := struct {
		Action BulkAction `json:"action"`
		By     *millis    `json:"by_ms,omitempty"`
		From   time.Time  `json:"from"`
		To     time.Time  `json:"to"`
		Cursor string     `json:"cursor,omitempty"`
	}{Action: change.Action, By: ms(change.By), From: change.From, To: change.To}
	request := call{method: http.MethodPost, path: pathOf(topic, "groups", group, "bulk")}
	// Messages that are still in the window would move again.
	request.isOnce = change.Action == BulkPostpone || change.Action == BulkAdvance
	for {
		var page struct {
			BulkResult
			cursor
		}
		if err := c.administer(ctx, request, body, &page); err != nil {
			return sum, err
		}
		sum.Changed += page.Changed
		sum.PassedOver += page.PassedOver
		if change.OnProgress != nil {
			change.OnProgress(sum)
		}
		if page.Next == "" {
			return sum, nil
		}
		body.Cursor = page.Next
	}
}

// CountDue counts the messages that are due in a window: those that Bulk changes. The window ends before to.
func (c *Client) CountDue(ctx context.Context, topic, group string, from, to time.Time) (waiting int64, err error) {
	if err := cmp.Or(named("topic", topic, "group", group), window(from, to)); err != nil {
		return 0, err
	}
	path := withQuery(pathOf(topic, "groups", group, "bulk"), url.Values{"from": {atTime(from)}, "to": {atTime(to)}})
	var result struct {
		Waiting int64 `json:"waiting"`
	}
	err = c.administer(ctx, call{method: http.MethodGet, path: path}, nil, &result)
	return result.Waiting, err
}

func window(from, to time.Time) error {
	if from.IsZero() || to.IsZero() {
		return wrong("From", "and To have to be given")
	}
	if !from.Before(to) {
		return wrong("From", fmt.Sprintf("is not before To: %s, %s", shown(from), shown(to)))
	}
	return nil
}
