package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// GroupSettings are settings of a group. A field that is nil, or an empty text, stays unchanged.
type GroupSettings struct {
	// CopyOf is the group whose messages a new group gets a copy of. Default: none, it gets what is pushed from now on.
	CopyOf string `json:"copy_of,omitempty"`
	// Rate is how many messages a second all brokers together hand out at most; 0 is without a limit.
	Rate *float64 `json:"rate,omitempty"`
	// MaxInFlight is how many deliveries are in flight at most; 0 is without a limit.
	MaxInFlight *int `json:"max_in_flight,omitempty"`
	// Window is when messages are handed out; outside of it the group is closed. An empty one is always open.
	Window *DeliveryWindow `json:"window,omitempty"`
	// Fair is what takes turns; FairnessNone ends it. Default FairnessNone.
	Fair Fairness `json:"fair,omitempty"`
	// KeyMaxInFlight is how many deliveries of one key are in flight at most; 0 is without a limit. Only in a fair group.
	KeyMaxInFlight *int `json:"key_max_in_flight,omitempty"`
	// KeyRate is how many deliveries of one key a second there are at most; 0 is without a limit, and removes KeyBurst. Only in a fair group.
	KeyRate *float64 `json:"key_rate,omitempty"`
	// KeyBurst is how many deliveries of one key may come at once, at least 1. Default 1. Only with a KeyRate.
	KeyBurst *int `json:"key_burst,omitempty"`
	// Weights is how large the shares of some keys are, 1 to 100, where others have 1: 100 at most, by the name of a key, or the beginning of names
	// with a * behind it, such as "gold-*". The name of a key counts before a beginning, and the longest beginning before others. Those given
	// replace all weights; an empty map removes them. Only in a fair group.
	Weights map[string]int `json:"weights,omitempty"`
	// KeyLimits are other limits for some keys, by names and beginnings as in Weights, 100 at most. Those given replace all of them; an empty map
	// removes them. Only in a fair group.
	KeyLimits map[string]KeyLimit `json:"key_limits,omitempty"`
}

// MarshalJSON writes the settings as the broker reads them: an empty map is sent, a nil one is not.
func (s GroupSettings) MarshalJSON() ([]byte, error) {
	type fields GroupSettings
	w := struct {
		fields
		Weights   *map[string]int      `json:"weights,omitempty"`
		KeyLimits *map[string]KeyLimit `json:"key_limits,omitempty"`
	}{fields: fields(s)}
	if s.Weights != nil {
		w.Weights = &s.Weights
	}
	if s.KeyLimits != nil {
		w.KeyLimits = &s.KeyLimits
	}
	return json.Marshal(w)
}

// KeyLimit are limits of some keys of a fair group. One that is nil is that of the group.
type KeyLimit struct {
	// MaxInFlight is how many deliveries of each such key are in flight at most; 0 is without a limit.
	MaxInFlight *int `json:"max_in_flight,omitempty"`
	// Rate is how many deliveries of each such key a second there are at most, 0.001 to 100,000; 0 is without a limit.
	Rate *float64 `json:"rate,omitempty"`
	// Burst is how many deliveries of each such key may come at once, 1 to 10,000. Default 1. Only with a Rate.
	Burst *int `json:"burst,omitempty"`
}

// DeliveryWindow is when a group hands messages out: days and a time of day. An empty one is always open.
type DeliveryWindow struct {
	// Days are those on which it opens. Default: every day.
	Days []Weekday `json:"days,omitempty"`
	// From is when it opens, such as "09:00".
	From string `json:"from,omitempty"`
	// To is when it closes: on the next day, unless it is later than From.
	To string `json:"to,omitempty"`
	// TimeZone is the time zone of both, such as "Europe/Berlin". Default: UTC.
	TimeZone string `json:"time_zone,omitempty"`
}

// GroupInfo is a group with its state and limits.
type GroupInfo struct {
	Group string     `json:"group"`
	State GroupState `json:"state"`
	// PausedUntil is when the pause ends by itself.
	PausedUntil time.Time `json:"paused_until"`
	// OpensAt is when the window opens, while it is closed.
	OpensAt time.Time `json:"opens_at"`
	// CopyOf is the group that is being copied.
	CopyOf string `json:"copy_of,omitempty"`
	// Rate and MaxInFlight are 0 without a limit.
	Rate        float64 `json:"rate,omitempty"`
	MaxInFlight int     `json:"max_in_flight,omitempty"`
	// Window is when messages are handed out; nil if always.
	Window *DeliveryWindow `json:"window,omitempty"`
	// Fair is what takes turns; empty if nothing does.
	Fair Fairness `json:"fair,omitempty"`
	// KeyMaxInFlight is how many deliveries of one key are in flight at most; 0 without a limit.
	KeyMaxInFlight int `json:"key_max_in_flight,omitempty"`
	// KeyRate is how many deliveries of one key a second there are at most; 0 without a limit.
	KeyRate float64 `json:"key_rate,omitempty"`
	// KeyBurst is how many deliveries of one key may come at once; 0 if it is not set, which means 1.
	KeyBurst int `json:"key_burst,omitempty"`
	// Weights is how large the shares of some keys are, where others have 1, by names and beginnings with a *; empty if all have 1.
	Weights map[string]int `json:"weights,omitempty"`
	// KeyLimits are other limits for some keys, by names and beginnings with a *; empty if there are none.
	KeyLimits map[string]KeyLimit `json:"key_limits,omitempty"`
}

// GroupDescription is a group and what is in it.
type GroupDescription struct {
	GroupInfo
	Totals     Counts           `json:"totals"`
	Partitions []PartitionState `json:"partitions"`
	// Members are the brokers that consume for the group.
	Members []Member `json:"members"`
	// Keys are the keys that have messages due or in flight; nil if the group is not fair.
	Keys *GroupKeys `json:"keys,omitempty"`
}

// GroupKeys are the keys of a fair group that have messages due or in flight.
type GroupKeys struct {
	// Count is how many there are. Messages without a key are one.
	Count int `json:"count"`
	// Complete: all partitions that have such messages have an owner, which answered in time.
	Complete bool `json:"complete"`
	// Busiest are those with the most messages, 100 at most.
	Busiest []KeyState `json:"busiest"`
	// PausedCount is how many keys are paused, whether they have messages or not.
	PausedCount int `json:"paused_count,omitempty"`
	// Paused are the paused keys, 100 at most, those that are free first.
	Paused []KeyPause `json:"paused,omitempty"`
}

// KeyPause is a key of a fair group, and how long it is paused.
type KeyPause struct {
	Key string `json:"key"`
	// PausedUntil is when the pause ends; the zero time if the key is not paused.
	PausedUntil time.Time `json:"paused_until"`
}

// KeyState is a key of a fair group.
type KeyState struct {
	// Key is empty for the messages without one.
	Key      string `json:"key"`
	Ready    int    `json:"ready"`
	InFlight int    `json:"in_flight"`
	// Reason is what its next message waits for, if the key holds it up: "key_paused", "key_at_max_in_flight" or "key_rate_limited".
	Reason string `json:"reason"`
	// Until is when the key may have its next delivery, if it waits for a time.
	Until time.Time `json:"until"`
}

// Member is a broker that consumes for a group.
type Member struct {
	Member  string `json:"member"`
	Version string `json:"version"`
	// Demand: consumers wait there, or had deliveries within the last second.
	Demand bool `json:"demand"`
	// Waiting is how many consumers wait there, and Owned how many partitions it owns.
	Waiting int `json:"waiting"`
	Owned   int `json:"owned"`
	// HeardAt is when its latest heartbeat was sent.
	HeardAt time.Time `json:"heard_at"`
}

// Groups lists the groups of a topic.
func (c *Client) Groups(ctx context.Context, topic string) ([]GroupInfo, error) {
	if err := named("topic", topic); err != nil {
		return nil, err
	}
	var result struct {
		Groups []GroupInfo `json:"groups"`
	}
	err := c.administer(ctx, call{method: http.MethodGet, path: pathOf(topic, "groups")}, nil, &result)
	return result.Groups, err
}

// group makes a call about a group.
func (c *Client) group(ctx context.Context, request call, topic, group, verb string, body, result any) error {
	if err := named("topic", topic, "group", group); err != nil {
		return err
	}
	query := request.path
	request.path = pathOf(topic, "groups", group)
	if verb != "" {
		request.path += "/" + verb
	}
	request.path += query
	return c.administer(ctx, request, body, result)
}

// Group gets a group with its state, counts and members.
func (c *Client) Group(ctx context.Context, topic, group string) (result GroupDescription, err error) {
	err = c.group(ctx, call{method: http.MethodGet}, topic, group, "", nil, &result)
	return result, err
}

// CreateGroup creates a group, or changes those of its settings that are given. Repeating it changes nothing.
func (c *Client) CreateGroup(ctx context.Context, topic, group string, settings GroupSettings) (result GroupInfo, err error) {
	if value(settings.Rate) < 0 || value(settings.MaxInFlight) < 0 {
		return result, wrong("Rate", "or MaxInFlight is negative; 0 is without a limit")
	}
	if value(settings.KeyMaxInFlight) < 0 {
		return result, wrong("KeyMaxInFlight", "is negative; 0 is without a limit")
	}
	if value(settings.KeyRate) < 0 {
		return result, wrong("KeyRate", "is negative; 0 is without a limit")
	}
	if settings.KeyBurst != nil && *settings.KeyBurst < 1 {
		return result, wrong("KeyBurst", "is below 1")
	}
	for _, weight := range settings.Weights {
		if weight < 1 {
			return result, wrong("Weights", "has a weight below 1")
		}
	}
	for _, limit := range settings.KeyLimits {
		if value(limit.MaxInFlight) < 0 || value(limit.Rate) < 0 {
			return result, wrong("KeyLimits", "has a MaxInFlight or Rate that is negative; 0 is without a limit")
		}
		if limit.Burst != nil && *limit.Burst < 1 {
			return result, wrong("KeyLimits", "has a Burst below 1")
		}
	}
	err = c.group(ctx, call{method: http.MethodPut}, topic, group, "", settings, &result)
	return result, err
}

// DeleteGroup deletes a group with all its messages.
func (c *Client) DeleteGroup(ctx context.Context, topic, group string) error {
	return c.group(ctx, call{method: http.MethodDelete}, topic, group, "", nil, nil)
}

// PauseOption is an option of Pause, and the end of PauseKey.
type PauseOption func(*pause)

type pause struct {
	For   *millis    `json:"for_ms,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// PauseFor ends the pause after this time.
func PauseFor(d time.Duration) PauseOption { return func(p *pause) { p.For = Ptr(millis(d)) } }

// PauseUntil ends the pause at this time.
func PauseUntil(at time.Time) PauseOption { return func(p *pause) { p.Until = &at } }

// pauseOf is the body of a pause with these options.
func pauseOf(opts ...PauseOption) (body pause, err error) {
	for _, option := range opts {
		option(&body)
	}
	if body.For != nil && body.Until != nil {
		return body, wrong("PauseFor", "is given together with PauseUntil")
	}
	if body.For != nil && *body.For <= 0 {
		return body, wrong("PauseFor", "has to be above 0")
	}
	return body, nil
}

// Pause pauses a group: nothing is delivered until it is resumed, or until the pause ends.
func (c *Client) Pause(ctx context.Context, topic, group string, opts ...PauseOption) (result GroupInfo, err error) {
	body, err := pauseOf(opts...)
	if err != nil {
		return result, err
	}
	err = c.group(ctx, call{method: http.MethodPost}, topic, group, "pause", body, &result)
	return result, err
}

// Resume resumes a group.
func (c *Client) Resume(ctx context.Context, topic, group string) (result GroupInfo, err error) {
	err = c.group(ctx, call{method: http.MethodPost}, topic, group, "resume", nil, &result)
	return result, err
}

// key makes a call about a key of a group.
func (c *Client) key(ctx context.Context, topic, group, key, verb string, body any) (result KeyPause, err error) {
	if err := named("topic", topic, "group", group, "key", key); err != nil {
		return result, err
	}
	// There these two would name another path.
	if key == "." || key == ".." {
		return KeyPause{}, wrong("key", "is a step of a path: pause the group")
	}
	path := pathOf(topic, "groups", group, "keys", key, verb)
	err = c.administer(ctx, call{method: http.MethodPost, path: path}, body, &result)
	return result, err
}

// PauseKey pauses a key of a fair group: nothing of it is delivered until the pause ends, or until it is resumed. The end is PauseFor or
// PauseUntil.
func (c *Client) PauseKey(ctx context.Context, topic, group, key string, end PauseOption) (KeyPause, error) {
	if end == nil {
		return KeyPause{}, wrong("end", "is nil: the pause of a key has an end")
	}
	body, err := pauseOf(end)
	if err != nil {
		return KeyPause{}, err
	}
	return c.key(ctx, topic, group, key, "pause", body)
}

// ResumeKey resumes a key of a fair group.
func (c *Client) ResumeKey(ctx context.Context, topic, group, key string) (KeyPause, error) {
	return c.key(ctx, topic, group, key, "resume", nil)
}

// Purge says which messages of a group to delete.
type Purge struct {
	// All has to be true: all messages of the group, scheduled, ready and in flight.
	All bool `json:"all"`
	// DeadLetters deletes its dead letters too.
	DeadLetters bool `json:"dead_letters,omitempty"`
	// DryRun only counts them.
	DryRun bool `json:"dry_run,omitempty"`
}

// Purged is what a purge did.
type Purged struct {
	Purged int64 `json:"purged"`
	// Matching is how many it would delete, with DryRun.
	Matching int64 `json:"matching,omitempty"`
}

// Purge deletes all messages of a group. It is not repeated after a lost answer, since it would delete what was pushed since. With an
// error it returns what was deleted before.
func (c *Client) Purge(ctx context.Context, topic, group string, purge Purge) (sum Purged, err error) {
	if !purge.All {
		return sum, wrong("All", "has to be true: all messages are deleted")
	}
	for {
		var page struct {
			Purged
			cursor
		}
		if err := c.group(ctx, call{method: http.MethodPost, isOnce: !purge.DryRun}, topic, group, "purge", purge, &page); err != nil {
			return sum, err
		}
		sum.Purged += page.Purged.Purged
		sum.Matching += page.Matching
		if page.Next == "" {
			return sum, nil
		}
	}
}

// Findings are inconsistencies of stored data.
type Findings struct {
	// Seen is how many entries were looked at.
	Seen     int64     `json:"seen"`
	Findings []Finding `json:"findings"`
}

// Finding is an inconsistency.
type Finding struct {
	ID        string `json:"id"`
	Partition int    `json:"partition"`
	Defect    Defect `json:"defect"`
}

// Verify looks for inconsistencies in the stored data of a group, and changes nothing.
func (c *Client) Verify(ctx context.Context, topic, group string) (Findings, error) {
	return c.verify(ctx, http.MethodGet, topic, group)
}

// Repair verifies the stored data of a group and repairs it, while producers and consumers work.
func (c *Client) Repair(ctx context.Context, topic, group string) (Findings, error) {
	return c.verify(ctx, http.MethodPost, topic, group)
}

func (c *Client) verify(ctx context.Context, method, topic, group string) (sum Findings, err error) {
	for next := ""; ; {
		var page struct {
			Findings
			cursor
		}
		request := call{method: method, path: withQuery("", url.Values{"cursor": {next}})}
		if err := c.group(ctx, request, topic, group, "verify", nil, &page); err != nil {
			return sum, err
		}
		sum.Seen += page.Seen
		sum.Findings = append(sum.Findings, page.Findings.Findings...)
		if next = page.Next; next == "" {
			return sum, nil
		}
	}
}

// Forecast is how many messages become due, in equal spans of time.
type Forecast struct {
	// From is where the first span begins: now.
	From time.Time `json:"from"`
	// Step is how long each span is.
	Step  time.Duration `json:"-"`
	Spans []Span        `json:"spans"`
	// Ready is how many are due already, and Later how many after the last span.
	Ready int64 `json:"ready"`
	Later int64 `json:"later"`
	// Backoff is how many hold their key until their next attempt: they are in no span.
	Backoff int64 `json:"backoff"`
}

// Span is how many messages become due in a span that ends at Until.
type Span struct {
	Until time.Time `json:"until"`
	Due   int64     `json:"due"`
}

// UnmarshalJSON reads the forecast of an answer.
func (f *Forecast) UnmarshalJSON(data []byte) error {
	type fields Forecast
	var step struct {
		Step millis `json:"step_ms"`
	}
	err := cmp.Or(json.Unmarshal(data, (*fields)(f)), json.Unmarshal(data, &step))
	f.Step = time.Duration(step.Step)
	return err
}

// Forecast counts the messages of a group that become due, in this many spans of this length. 0 is the broker's default: 60 spans of
// a minute.
func (c *Client) Forecast(ctx context.Context, topic, group string, step time.Duration, spans int) (result Forecast, err error) {
	if err := notNegative("step", step); err != nil {
		return result, err
	}
	if spans < 0 {
		return result, wrong("spans", "is negative")
	}
	query := url.Values{"spans": {number(spans)}}
	if step > 0 {
		query.Set("step_ms", strconv.FormatInt(milliseconds(step), 10))
	}
	err = c.group(ctx, call{method: http.MethodGet, path: withQuery("", query)}, topic, group, "forecast", nil, &result)
	return result, err
}
