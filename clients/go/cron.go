package dwell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// NewCronJob is a message that recurs: when, and what is pushed. Give either Cron or Every.
type NewCronJob struct {
	// Cron is an expression of five fields, or a name such as "@daily".
	Cron string
	// TimeZone is the IANA name of the time zone of Cron. Default "UTC".
	TimeZone string
	// Every is the span from one occurrence to the next, at least 1 s.
	Every time.Duration
	// From: occurrences are whole spans of Every after this. Default: 1970.
	From time.Time
	// Missed is which missed occurrences are pushed later. Default MissedLast.
	Missed Missed
	// TTL is how long after its occurrence a message is still delivered.
	TTL time.Duration
	// MaxAttempts may be NoLimit. Default: the topic's.
	MaxAttempts int
	// Payload is []byte, string, or any other value, which is sent as JSON.
	Payload     any
	ContentType string
	Meta        map[string]string
}

// String is the cron job without its payload.
func (j NewCronJob) String() string {
	return fmt.Sprintf("NewCronJob{cron: %q, every: %v}", j.Cron, j.Every)
}

// GoString is the cron job without its payload.
func (j NewCronJob) GoString() string { return "dwell." + j.String() }

// CronJob is a message that recurs.
type CronJob struct {
	Name     string        `json:"name"`
	State    CronState     `json:"state"`
	Paused   bool          `json:"paused"`
	Cron     string        `json:"cron,omitempty"`
	TimeZone string        `json:"time_zone,omitempty"`
	Every    time.Duration `json:"-"`
	From     time.Time     `json:"from"`
	Missed   Missed        `json:"missed,omitempty"`
	// NextAt is when it occurs next; the zero time while it is paused, and when it has failed.
	NextAt time.Time `json:"next_at"`
	// Failure is why it has failed.
	Failure string        `json:"failure,omitempty"`
	TTL     time.Duration `json:"-"`
	// MaxAttempts is its own limit, or nil; 0 is without one.
	MaxAttempts *int              `json:"max_attempts,omitempty"`
	Payload     []byte            `json:"-"`
	ContentType string            `json:"content_type,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
}

// UnmarshalJSON reads the cron job of an answer.
func (j *CronJob) UnmarshalJSON(data []byte) error {
	type fields CronJob
	var spans struct {
		Every millis `json:"every_ms"`
		TTL   millis `json:"ttl_ms"`
	}
	err := cmp.Or(json.Unmarshal(data, (*fields)(j)), json.Unmarshal(data, &spans), readPayload(data, &j.Payload))
	j.Every, j.TTL = time.Duration(spans.Every), time.Duration(spans.TTL)
	return err
}

// String is the cron job without its payload.
func (j CronJob) String() string {
	const form = "CronJob{name: %q, state: %s, cron: %q, every: %v, next at: %s, payload: %d bytes}"
	return fmt.Sprintf(form, j.Name, j.State, j.Cron, j.Every, shown(j.NextAt), len(j.Payload))
}

// GoString is the cron job without its payload.
func (j CronJob) GoString() string { return "dwell." + j.String() }

type wireCronJob struct {
	Cron        string     `json:"cron,omitempty"`
	TimeZone    string     `json:"time_zone,omitempty"`
	Every       *millis    `json:"every_ms,omitempty"`
	From        *time.Time `json:"from,omitempty"`
	Missed      Missed     `json:"missed,omitempty"`
	TTL         *millis    `json:"ttl_ms,omitempty"`
	MaxAttempts *int       `json:"max_attempts,omitempty"`
	payloadFields
	ContentType string            `json:"content_type,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
}

// cron makes a call about a cron job.
func (c *Client) cron(ctx context.Context, method, topic, name, verb string, body any) (result CronJob, err error) {
	if err := named("topic", topic, "name", name); err != nil {
		return result, err
	}
	path := pathOf(topic, "cron", name)
	if verb != "" {
		path += "/" + verb
	}
	err = c.administer(ctx, call{method: method, path: path}, body, &result)
	return result, err
}

// PutCron creates a cron job, or changes it. Repeating it changes nothing.
func (c *Client) PutCron(ctx context.Context, topic, name string, job NewCronJob) (CronJob, error) {
	if (job.Cron == "") == (job.Every == 0) {
		return CronJob{}, wrong("Cron", "or Every has to be given, and not both")
	}
	if err := cmp.Or(notNegative("Every", job.Every), notNegative("TTL", job.TTL)); err != nil {
		return CronJob{}, err
	}
	return c.cron(ctx, http.MethodPut, topic, name, "", wireCronJob{
		Cron: job.Cron, TimeZone: job.TimeZone, Every: ms(job.Every), From: optional(job.From), Missed: job.Missed, TTL: ms(job.TTL),
		MaxAttempts: attempts(job.MaxAttempts), payloadFields: payloadOf(job.Payload), ContentType: job.ContentType, Meta: job.Meta,
	})
}

// Cron gets a cron job, with the time of its next occurrence.
func (c *Client) Cron(ctx context.Context, topic, name string) (CronJob, error) {
	return c.cron(ctx, http.MethodGet, topic, name, "", nil)
}

// Crons lists the cron jobs of a topic, page by page. An error ends the list.
func (c *Client) Crons(ctx context.Context, topic string) iter.Seq2[CronJob, error] {
	var page struct {
		Jobs []CronJob `json:"cron_jobs"`
		cursor
	}
	return pages(c, ctx, named("topic", topic), pathOf(topic, "cron"), url.Values{}, &page, &page.Jobs, &page.cursor)
}

// PauseCron pauses a cron job: nothing is pushed until it is resumed.
func (c *Client) PauseCron(ctx context.Context, topic, name string) (CronJob, error) {
	return c.cron(ctx, http.MethodPost, topic, name, "pause", nil)
}

// ResumeCron resumes a cron job. It continues with the next occurrence.
func (c *Client) ResumeCron(ctx context.Context, topic, name string) (CronJob, error) {
	return c.cron(ctx, http.MethodPost, topic, name, "resume", nil)
}

// DeleteCron deletes a cron job. Messages that it has pushed stay.
func (c *Client) DeleteCron(ctx context.Context, topic, name string) error {
	_, err := c.cron(ctx, http.MethodDelete, topic, name, "", nil)
	return err
}
