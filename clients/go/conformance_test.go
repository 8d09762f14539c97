package dwell_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/dwell"
)

type object = map[string]any

var quiet = dwell.Logger(slog.New(slog.NewTextHandler(io.Discard, nil)))

// differs returns what is expected and not there; "<x>" is any value.
func differs(expected, actual any) string {
	switch expected := expected.(type) {
	case object:
		fields, ok := actual.(object)
		for name, value := range expected {
			if why := differs(value, fields[name]); why != "" || !ok {
				return fmt.Sprintf("%s: %s", name, why)
			}
		}
		return ""
	case []any:
		items, _ := actual.([]any)
		if len(items) != len(expected) {
			return fmt.Sprintf("%v, expected %v", actual, expected)
		}
		for n, item := range expected {
			if why := differs(item, items[n]); why != "" {
				return why
			}
		}
		return ""
	case string:
		if strings.HasPrefix(expected, "<") {
			return ""
		}
	}
	// An absent number or text is a zero value in Go.
	if expected != actual && !(actual == nil && (expected == 0.0 || expected == "")) {
		return fmt.Sprintf("%v, expected %v", actual, expected)
	}
	return ""
}

// plain is a value as in the answers of the broker.
func plain(t testing.TB, value any) any {
	t.Helper()
	var payload []byte
	switch value := value.(type) {
	case dwell.Message:
		payload = value.Payload
	case *dwell.Delivery:
		payload = value.Payload
	}
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var result any
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	if fields, ok := result.(object); ok {
		fields["payload_text"], fields["payload_base64"] = string(payload), base64.StdEncoding.EncodeToString(payload)
	}
	return result
}

func text(fields object, name string) string {
	value, _ := fields[name].(string)
	return value
}

func duration(t testing.TB, value string) time.Duration {
	t.Helper()
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func due(t testing.TB, value string) (at time.Time) {
	t.Helper()
	if value != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, value); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

func message(t testing.TB, fields object) dwell.NewMessage {
	t.Helper()
	m := dwell.NewMessage{
		Payload: fields["payload"], ID: text(fields, "id"), Key: text(fields, "key"), Delay: duration(t, text(fields, "delay")),
		DueAt: due(t, text(fields, "due_at")), Past: text(fields, "past"), TTL: duration(t, text(fields, "ttl")),
		DedupKey: text(fields, "dedup_key"), DedupFor: duration(t, text(fields, "dedup_for")),
		Conflict: text(fields, "conflict"), ContentType: text(fields, "content_type"),
	}
	if value, ok := fields["payload_json"]; ok {
		m.Payload = value
	}
	if value, ok := fields["payload_base64"]; ok {
		bytes, err := base64.StdEncoding.DecodeString(value.(string))
		if err != nil {
			t.Fatal(err)
		}
		m.Payload = bytes
	}
	if value, ok := fields["priority"].(float64); ok {
		m.Priority = int(value)
	}
	if value, ok := fields["max_attempts"].(float64); ok {
		m.MaxAttempts = int(value)
		if value == 0 {
			m.MaxAttempts = -1
		}
	}
	if meta, ok := fields["meta"].(object); ok {
		m.Meta = map[string]string{}
		for name := range meta {
			m.Meta[name] = text(meta, name)
		}
	}
	return m
}

func invoke(t testing.TB, c *dwell.Client, name string, args object) (any, error) {
	t.Helper()
	ctx, topic, id, key := context.Background(), text(args, "topic"), text(args, "id"), text(args, "key")
	switch name {
	case "push":
		return c.Push(ctx, topic, message(t, args))
	case "push_many":
		var messages []dwell.NewMessage
		given, _ := args["messages"].([]any)
		for _, fields := range given {
			messages = append(messages, message(t, fields.(object)))
		}
		repeat, _ := args["repeat"].(float64)
		for range int(repeat) {
			messages = append(messages, dwell.NewMessage{Payload: args["payload"]})
		}
		return c.PushMany(ctx, topic, messages)
	case "cancel":
		return c.Cancel(ctx, topic, id, key)
	case "reschedule":
		r := dwell.Reschedule{Key: key, Delay: duration(t, text(args, "delay")), ETag: text(args, "etag")}
		return c.Reschedule(ctx, topic, id, r)
	case "get":
		return c.Get(ctx, topic, id, key, text(args, "group"))
	case "create_topic":
		settings, _ := args["settings"].(object)
		return nil, c.CreateTopic(ctx, topic, settings)
	}
	t.Fatalf("no call is named %s", name)
	return nil, nil
}

func raised(t testing.TB, expected object, err error) {
	t.Helper()
	var refused *dwell.Error
	if !errors.As(err, &refused) {
		t.Fatalf("%v is no error of dwell", err)
	}
	kind, results := "refused", any(nil)
	var many *dwell.PushManyError
	switch {
	case errors.As(err, &many):
		kind, results = "push_many", plain(t, many.Results)
	case errors.Is(err, dwell.ErrUnavailable):
		kind = "unavailable"
	}
	var problem object
	_ = json.Unmarshal(refused.Problem, &problem)
	actual := object{
		"kind": kind, "status": float64(refused.Status), "type": refused.Type, "detail": refused.Detail, "request_id": refused.RequestID,
		"repeated": refused.Repeated,
		"groups":   problem["groups"], "results": results,
	}
	if why := differs(expected, actual); why != "" {
		t.Error(why)
	}
}

type vector struct {
	Client struct {
		RetryFor string `json:"retry_for"`
	}
	Token *string
	Calls []struct {
		Call         string
		Args         object
		Returns      any
		ReturnsCount int `json:"returns_count"`
		Raises       object
	}
	Worker   object
	Handlers map[string]struct {
		Delivery object
		When     object
		Extend   string
		IsOurs   bool `json:"is_ours"`
		Then     any
	}
	Stop *struct {
		When object
	}
	Stats  object
	Raises object
}

func work(t *testing.T, c *dwell.Client, v vector) {
	events := map[dwell.Event]float64{}
	opts := []dwell.WorkerOption{quiet, dwell.OnEvent(func(name dwell.Event, _ *dwell.Delivery) { events[name]++ })}
	for name, value := range v.Worker {
		switch name {
		case "group":
			opts = append(opts, dwell.Group(value.(string)))
		case "concurrency":
			opts = append(opts, dwell.Concurrency(int(value.(float64))))
		case "visibility":
			opts = append(opts, dwell.Visibility(duration(t, value.(string))))
		case "max_runtime":
			opts = append(opts, dwell.MaxRuntime(duration(t, value.(string))))
		case "drain":
			opts = append(opts, dwell.Drain(duration(t, value.(string))))
		}
	}
	worker := dwell.NewWorker(c, text(v.Worker, "topic"), opts...)
	handler := func(ctx context.Context, d *dwell.Delivery) error {
		lab(t, "/mark", object{"name": "begun"}, nil)
		script := v.Handlers[d.ID]
		if why := differs(script.Delivery, plain(t, d)); script.Delivery != nil && why != "" {
			t.Error(why)
		}
		if script.When != nil {
			wait(t, script.When)
		}
		if script.Extend != "" && d.Extend(ctx, duration(t, script.Extend)) != script.IsOurs {
			t.Errorf("extend of %s", d.ID)
		}
		then, _ := script.Then.(object)
		if script.Then == "lost" {
			<-ctx.Done()
			lab(t, "/mark", object{"name": "lost"}, nil)
			return ctx.Err()
		}
		lab(t, "/mark", object{"name": "handled"}, nil)
		switch {
		case then["raise"] != nil:
			times, _ := then["times"].(float64)
			return errors.New(strings.Repeat(text(then, "raise"), max(1, int(times))))
		case then["retry"] != nil:
			return dwell.Retry(duration(t, text(then, "retry")), text(then, "reason"))
		case then["bury"] != nil:
			return dwell.Bury(text(then, "bury"))
		}
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var ended sync.WaitGroup
	var err error
	ended.Add(1)
	go func() { defer ended.Done(); err = worker.Run(ctx, handler) }()
	if v.Stop != nil {
		wait(t, v.Stop.When)
		lab(t, "/mark", object{"name": "stopping"}, nil)
		stop()
	}
	ended.Wait()
	stats := plain(t, worker.Stats()).(object)
	if why := differs(v.Stats, stats); why != "" {
		t.Errorf("stats: %s", why)
	}
	for name, count := range events {
		if name != "settled" && stats[string(name)] != count {
			t.Errorf("%v events %s, and stats have %v", count, name, stats[string(name)])
		}
	}
	if v.Raises != nil {
		raised(t, v.Raises, err)
	} else if err != nil {
		t.Error(err)
	}
}

func wait(t testing.TB, when object) {
	t.Helper()
	var answer struct {
		IsMet bool `json:"is_met"`
	}
	lab(t, "/wait", object{"when": when}, &answer)
	if !answer.IsMet {
		t.Errorf("there was never %v", when)
	}
}

// TestConformance plays the vectors of clients/conformance.
func TestConformance(t *testing.T) {
	var names []struct{ File, Name string }
	lab(t, "/vectors", nil, &names)
	for _, name := range names {
		t.Run(name.Name, func(t *testing.T) {
			var begun struct {
				Server    string
				TokenFile string `json:"token_file"`
				Vector    vector
			}
			lab(t, "/vector", object{"file": name.File, "name": name.Name}, &begun)
			defer func() {
				var ended struct{ Failures []string }
				lab(t, "/vector/end", nil, &ended)
				for _, failure := range ended.Failures {
					t.Error(failure)
				}
			}()
			v := begun.Vector
			opts := []dwell.Option{dwell.Timeout(10 * time.Second), dwell.RetryFor(max(duration(t, v.Client.RetryFor), 0))}
			if v.Client.RetryFor == "" {
				opts = append(opts, dwell.RetryFor(30*time.Second))
			}
			if v.Token != nil {
				opts = append(opts, dwell.TokenFile(begun.TokenFile))
			}
			c, err := dwell.New(begun.Server, opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if v.Worker != nil {
				work(t, c, v)
			}
			for _, step := range v.Calls {
				result, err := invoke(t, c, step.Call, step.Args)
				if step.Raises != nil {
					raised(t, step.Raises, err)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if why := differs(step.Returns, plain(t, result)); step.Returns != nil && why != "" {
					t.Error(why)
				}
				if results, ok := result.([]dwell.PushResult); ok && step.ReturnsCount > 0 && len(results) != step.ReturnsCount {
					t.Errorf("%d results, expected %d", len(results), step.ReturnsCount)
				}
			}
		})
	}
}
