package dwell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/dwell"
)

// nobody is the address of a port on which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String()
}

func TestARefusalNamesItsType(t *testing.T) {
	refused := &dwell.Error{Problem: dwell.Problem{Status: 409, Type: dwell.ErrConflict, Detail: "why"}, Server: "unix:/run/dwell.sock"}
	if text := refused.Error(); text != "dwell: unix:/run/dwell.sock: 409 conflict: why" {
		t.Error(text)
	}
}

func TestUnavailableHasTheAddressAndTheCause(t *testing.T) {
	server := nobody(t)
	c, err := dwell.New(server, dwell.RetryFor(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Push(context.Background(), "orders", dwell.NewMessage{Payload: "x"})
	var of *net.OpError
	if !errors.Is(err, dwell.ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &of) {
		t.Errorf("%v", err)
	}
	if text := err.Error(); !strings.HasPrefix(text, "dwell: "+server+": unavailable: ") || !strings.Contains(text, "connection refused") {
		t.Error(text)
	}
}

func TestAContextThatEndedIsItsOwnError(t *testing.T) {
	c, err := dwell.New(nobody(t), dwell.RetryFor(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err = c.Push(ctx, "orders", dwell.NewMessage{Payload: "x"})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dwell.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = c.Get(cancelled, "orders", dwell.Ref{ID: "a"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestABrokerThatHangsIsUnavailableAfterRetryFor(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c, err := dwell.New("http://"+listener.Addr().String(), dwell.RetryFor(1500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = c.Push(context.Background(), "orders", dwell.NewMessage{Payload: "x"})
	if took := time.Since(began); !errors.Is(err, dwell.ErrUnavailable) || took > 20*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func TestWrongArgumentsAreRefusedBeforeARequest(t *testing.T) {
	ctx := context.Background()
	c, err := dwell.New(nobody(t))
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context, *dwell.Delivery) error { return nil }
	push := func(m dwell.NewMessage) error {
		_, err := c.Push(ctx, "orders", m)
		return err
	}
	_, noTopic := c.Push(ctx, "", dwell.NewMessage{})
	_, noID := c.Cancel(ctx, "orders", dwell.Ref{Key: "k"})
	_, noGroup := c.Get(ctx, "orders", dwell.Ref{ID: "a"}, dwell.InGroup(""))
	_, notAll := c.Purge(ctx, "orders", "default", dwell.Purge{})
	_, noneSelected := c.Redrive(ctx, "orders", "default", dwell.Selection{})
	_, bothDue := c.Reschedule(ctx, "orders", dwell.Ref{ID: "a"}, dwell.Reschedule{Delay: time.Second, DueAt: time.Now()})
	_, noDue := c.Reschedule(ctx, "orders", dwell.Ref{ID: "a"}, dwell.Reschedule{})
	_, noIDs := c.CancelMany(ctx, "orders", []dwell.Ref{{ID: "a"}, {}})
	_, noWindow := c.Bulk(ctx, "orders", "default", dwell.BulkChange{Action: dwell.BulkCancel})
	_, noSchedule := c.PutCron(ctx, "orders", "nightly", dwell.NewCronJob{Payload: "x"})
	_, badTopic := c.CreateTopic(ctx, "orders", dwell.TopicSettings{TTL: dwell.Ptr(-time.Second)})
	_, badKeyLimit := c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{KeyMaxInFlight: dwell.Ptr(-1)})
	_, badKeyRate := c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{KeyRate: dwell.Ptr(-0.5)})
	_, noKeyBurst := c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{KeyRate: dwell.Ptr(10.0), KeyBurst: dwell.Ptr(0)})
	_, badKeyBurst := c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{KeyRate: dwell.Ptr(10.0), KeyBurst: dwell.Ptr(-1)})
	_, noWeight := c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{Weights: map[string]int{"gold-*": 3, "customer-7": 0}})
	limited := func(limit dwell.KeyLimit) error {
		_, err := c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{KeyLimits: map[string]dwell.KeyLimit{"gold-*": limit}})
		return err
	}
	_, noKey := c.PauseKey(ctx, "orders", "audit", "", dwell.PauseFor(time.Hour))
	_, noKeyToResume := c.ResumeKey(ctx, "orders", "audit", "")
	_, noEnd := c.PauseKey(ctx, "orders", "audit", "a", nil)
	_, badServer := dwell.New("127.0.0.1:7373")
	_, badProducer := dwell.NewProducer(c, dwell.BatchSize(0)).Push(ctx, "orders", dwell.NewMessage{})
	for what, err := range map[string]error{
		"no topic": noTopic, "no id": noID, "no group": noGroup, "purge of nothing": notAll, "no selection": noneSelected,
		"both due times": bothDue, "no due time": noDue, "one id is empty": noIDs, "no window": noWindow, "no schedule": noSchedule, "negative ttl of a topic": badTopic,
		"server without a scheme": badServer, "empty batches": badProducer, "negative limit of a key": badKeyLimit,
		"negative rate of a key": badKeyRate, "burst of 0": noKeyBurst, "negative burst": badKeyBurst, "weight of 0": noWeight,
		"pause of no key": noKey, "resume of no key": noKeyToResume, "pause of a key without an end": noEnd,
		"negative limit of keys":     limited(dwell.KeyLimit{MaxInFlight: dwell.Ptr(-1)}),
		"negative rate of keys":      limited(dwell.KeyLimit{Rate: dwell.Ptr(-0.5)}),
		"burst of 0 of keys":         limited(dwell.KeyLimit{Rate: dwell.Ptr(10.0), Burst: dwell.Ptr(0)}),
		"negative delay":             push(dwell.NewMessage{Delay: -1}),
		"negative ttl":               push(dwell.NewMessage{TTL: -1}),
		"delay together with due_at": push(dwell.NewMessage{Delay: 1, DueAt: time.Now()}),
		"concurrency of 0":           dwell.NewWorker(c, "orders", dwell.Concurrency(0)).Run(ctx, never),
		"worker without a topic":     dwell.NewWorker(c, "").Run(ctx, never),
		"worker without a group":     dwell.NewWorker(c, "orders", dwell.Group("")).Run(ctx, never),
		"negative drain":             dwell.NewWorker(c, "orders", dwell.Drain(-1)).Run(ctx, never),
	} {
		var wrong *dwell.ArgumentError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, err := range c.DeadLetters(ctx, "orders", "", dwell.DeadLetterQuery{}) {
		var wrong *dwell.ArgumentError
		if !errors.As(err, &wrong) {
			t.Error(err)
		}
	}
}

func TestWhatTakesTurnsInAGroupMayBeAbsentOrNew(t *testing.T) {
	for answer, fair := range map[string]dwell.Fairness{
		`{"group": "audit", "state": "active"}`:                   "",
		`{"group": "audit", "state": "active", "fair": "key"}`:    dwell.FairnessKey,
		`{"group": "audit", "state": "active", "fair": "tenant"}`: "tenant",
	} {
		var group dwell.GroupInfo
		if err := json.Unmarshal([]byte(answer), &group); err != nil || group.Fair != fair || group.Group != "audit" {
			t.Errorf("%s: %+v, %v", answer, group, err)
		}
	}
}

func TestTheLimitsOfAKeyMayBeAbsent(t *testing.T) {
	for limits, expected := range map[string]dwell.GroupInfo{
		``:                                      {},
		`, "key_max_in_flight": 5`:              {KeyMaxInFlight: 5},
		`, "key_rate": 0.5`:                     {KeyRate: 0.5},
		`, "key_rate": 10.0, "key_burst": 20`:   {KeyRate: 10, KeyBurst: 20},
		`, "key_rate": 10.0, "key_burst": null`: {KeyRate: 10},
		`, "weights": {"gold_plan-*": 3}`:       {Weights: map[string]int{"gold_plan-*": 3}},
		`, "key_limits": {"gold_plan-*": {"max_in_flight": 0}, "a": {"rate": 0.5, "burst": 20}}`: {KeyLimits: map[string]dwell.KeyLimit{
			"gold_plan-*": {MaxInFlight: dwell.Ptr(0)}, "a": {Rate: dwell.Ptr(0.5), Burst: dwell.Ptr(20)},
		}},
	} {
		expected.Group, expected.State, expected.Fair = "audit", dwell.GroupActive, dwell.FairnessKey
		answer := `{"group": "audit", "state": "active", "fair": "key"` + limits + `}`
		var group dwell.GroupInfo
		if err := json.Unmarshal([]byte(answer), &group); err != nil || !reflect.DeepEqual(group, expected) {
			t.Errorf("%s: %+v, %v", answer, group, err)
		}
	}
}

func TestEmptyMapsOfAGroupAreSentAndNilOnesAreNot(t *testing.T) {
	for expected, settings := range map[string]dwell.GroupSettings{
		`{}`:                             {},
		`{"weights":{},"key_limits":{}}`: {Weights: map[string]int{}, KeyLimits: map[string]dwell.KeyLimit{}},
		`{"fair":"key","weights":{"gold_plan-*":3},"key_limits":{"gold_plan-*":{"max_in_flight":0,"rate":0.5,"burst":20}}}`: {
			Fair: dwell.FairnessKey, Weights: map[string]int{"gold_plan-*": 3},
			KeyLimits: map[string]dwell.KeyLimit{"gold_plan-*": {MaxInFlight: dwell.Ptr(0), Rate: dwell.Ptr(0.5), Burst: dwell.Ptr(20)}},
		},
	} {
		if sent, err := json.Marshal(settings); err != nil || string(sent) != expected {
			t.Errorf("%s, expected %s: %v", sent, expected, err)
		}
	}
}

func TestAnEmptyTextOfAMessageIsNotGiven(t *testing.T) {
	var sent []map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		sent = append(sent, body)
		_, _ = w.Write([]byte(`{"id": "a", "status": "stored"}`))
	}))
	defer server.Close()
	c, err := dwell.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Push(context.Background(), "orders", dwell.NewMessage{ID: "", Key: "", DedupKey: "", Payload: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, body := range sent {
		if id, _ := body["id"].(string); len(id) != 26 || body["key"] != nil || body["dedup_key"] != nil {
			t.Errorf("sent %v", body)
		}
	}
	if len(sent) != 2 || sent[0]["id"] == sent[1]["id"] {
		t.Errorf("sent %v", sent)
	}
}

func TestAnEmptyNameIsRefusedWhereOneIsNeeded(t *testing.T) {
	ctx := context.Background()
	c, err := dwell.New(nobody(t))
	if err != nil {
		t.Fatal(err)
	}
	none, later := dwell.Ref{Key: "k"}, dwell.Reschedule{Delay: time.Second}
	_, got := c.Get(ctx, "orders", none)
	_, cancelled := c.Cancel(ctx, "orders", none)
	_, rescheduled := c.Reschedule(ctx, "orders", none, later)
	_, explained := c.Explain(ctx, "orders", none)
	_, gotMany := c.GetMany(ctx, "orders", []dwell.Ref{none})
	_, cancelledMany := c.CancelMany(ctx, "orders", []dwell.Ref{none})
	_, rescheduledMany := c.RescheduleMany(ctx, "orders", []dwell.Ref{none}, later)
	_, inNoGroup := c.Get(ctx, "orders", dwell.Ref{ID: "a"}, dwell.InGroup(""))
	_, manyInNoGroup := c.GetMany(ctx, "orders", []dwell.Ref{{ID: "a"}}, dwell.InGroup(""))
	_, redriven := c.Redrive(ctx, "orders", "default", dwell.Selection{IDs: []string{"a", ""}})
	_, cron := c.PutCron(ctx, "orders", "", dwell.NewCronJob{Cron: "@daily", Payload: "x"})
	for what, err := range map[string]error{
		"get": got, "cancel": cancelled, "reschedule": rescheduled, "explain": explained, "get many": gotMany,
		"cancel many": cancelledMany, "reschedule many": rescheduledMany, "in no group": inNoGroup,
		"many in no group": manyInNoGroup, "redrive": redriven, "cron": cron,
	} {
		var wrong *dwell.ArgumentError
		if !errors.As(err, &wrong) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestNoPayloadIsPrinted(t *testing.T) {
	const secret = "4111-1111-1111-1111"
	contents := dwell.Contents{Payload: []byte(secret), Key: "k"}
	message := dwell.Message{Contents: contents, ID: "a"}
	delivery := dwell.Delivery{Contents: contents, ID: "a", Receipt: secret}
	pushed := dwell.NewMessage{Payload: secret, ID: "a"}
	job := dwell.CronJob{Payload: []byte(secret), Name: "a"}
	newJob := dwell.NewCronJob{Payload: secret, Cron: "@daily"}
	values := []any{contents, &contents, message, &message, delivery, &delivery, pushed, &pushed, job, &job, newJob, &newJob,
		[]dwell.Message{message}, dwell.Result[dwell.Message]{Value: message}, map[string]*dwell.Delivery{"a": &delivery}}
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			text := fmt.Sprintf(verb, value)
			if strings.Contains(text, secret) || strings.Contains(text, "52, 49, 49") || strings.Contains(text, "52 49 49") || strings.Contains(text, "0x34, 0x31") {
				t.Errorf("%T with %s: %s", value, verb, text)
			}
		}
	}
	if text := fmt.Sprintf("%+v", delivery); !strings.Contains(text, `id: "a"`) || !strings.Contains(text, "payload: 19 bytes") {
		t.Error(text)
	}
}
