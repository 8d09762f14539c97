package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Broker is one of the brokers that share the store.
type Broker struct {
	// Member is its name, as in Owner of its partitions.
	Member  string `json:"member"`
	Version string `json:"version"`
	// Here: it is the one that answered.
	Here bool `json:"here"`
	// Doing is "serving", "buffering", "replaying", "restoring", "draining" or "unknown".
	Doing string `json:"doing"`
	// Groups is of how many groups it is a member; in Demanded of them consumers want messages from it.
	Groups   int `json:"groups"`
	Demanded int `json:"demanded"`
	// Waiting is how many consumers wait there, and Owned how many partitions it owns.
	Waiting int `json:"waiting"`
	Owned   int `json:"owned"`
	// WALRecords wait in its write-ahead log, which has WALBytes of WALLimitBytes.
	WALRecords     int64 `json:"wal_records"`
	WALBytes       int64 `json:"wal_bytes"`
	WALLimitBytes  int64 `json:"wal_limit_bytes"`
	JournalRecords int64 `json:"journal_records"`
	JournalBytes   int64 `json:"journal_bytes"`
	// StartedAt is by its clock, which is ClockAhead of that of the store.
	StartedAt  time.Time     `json:"started_at"`
	ClockAhead time.Duration `json:"-"`
	// HeardAt is when its latest heartbeat was sent.
	HeardAt time.Time `json:"heard_at"`
}

// UnmarshalJSON reads the broker of an answer.
func (b *Broker) UnmarshalJSON(data []byte) error {
	type fields Broker
	var clock struct {
		Ahead millis `json:"clock_ahead_ms"`
	}
	err := cmp.Or(json.Unmarshal(data, (*fields)(b)), json.Unmarshal(data, &clock))
	b.ClockAhead = time.Duration(clock.Ahead)
	return err
}

// Brokers lists the brokers that share the store.
func (c *Client) Brokers(ctx context.Context) ([]Broker, error) {
	var result struct {
		Brokers []Broker `json:"brokers"`
	}
	err := c.administer(ctx, call{method: http.MethodGet, path: "/v1/brokers"}, nil, &result)
	return result.Brokers, err
}

// Attention is what needs attention.
type Attention struct {
	// Items are the most urgent first, at most 200. Empty: all is well.
	Items []AttentionItem `json:"attention"`
	// Topics is how many there are, and TopicsSeen how many were looked at.
	Topics     int `json:"topics"`
	TopicsSeen int `json:"topics_seen"`
}

// AttentionItem is a reason to act.
type AttentionItem struct {
	// Kind is stable, such as "no_consumer".
	Kind string `json:"kind"`
	// Topic and Group are what it is about; empty for the broker or its store.
	Topic string `json:"topic,omitempty"`
	Group string `json:"group,omitempty"`
	// Cause is for people.
	Cause string `json:"cause"`
	// Alert is the alert of Prometheus for it, which is also the heading of its runbook.
	Alert string `json:"alert,omitempty"`
}

// Attention lists what needs attention in all topics.
func (c *Client) Attention(ctx context.Context) (result Attention, err error) {
	err = c.administer(ctx, call{method: http.MethodGet, path: "/v1/attention"}, nil, &result)
	return result, err
}
