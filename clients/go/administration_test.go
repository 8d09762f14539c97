package dwell_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"example.com/dwell"
	"example.com/dwell/dwelltest"
)

// must is the value of a call that has to succeed.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestTopicsAreAdministered(t *testing.T) {
	ctx := context.Background()
	broker := dwelltest.Start(t)
	c := broker.Client
	settings := dwell.TopicSettings{
		Partitions: dwell.Ptr(2), VisibilityTimeout: dwell.Ptr(time.Minute), Backoff: dwell.Exponential(time.Second, time.Hour),
		DeadLetterTopic: dwell.Ptr("orders-dead"), TTL: dwell.Ptr(24 * time.Hour), Annotations: map[string]string{"owner": "shop"},
	}
	created := must(c.CreateTopic(ctx, "orders", settings))(t)
	if *created.Settings.VisibilityTimeout != time.Minute || *created.Settings.DeadLetterTopic != "orders-dead" || created.Settings.Backoff.Max != time.Hour {
		t.Errorf("%+v", created.Settings)
	}
	described := must(c.Topic(ctx, "orders"))(t)
	must(c.CreateTopic(ctx, "orders", dwell.TopicSettings{MaxAttempts: dwell.Ptr(3)}, dwell.IfMatch(described.ETag)))(t)
	if err := c.DeleteTopic(ctx, "orders", dwell.IfMatch(described.ETag)); !errors.Is(err, dwell.ErrPreconditionFailed) {
		t.Error(err)
	}
	// Settings of an answer make an equal topic.
	copied := must(c.CreateTopic(ctx, "copy", must(c.Topic(ctx, "orders"))(t).Settings))(t)
	if *copied.Settings.MaxAttempts != 3 || *copied.Settings.Partitions != 2 || *copied.Settings.TTL != 24*time.Hour {
		t.Errorf("%+v", copied.Settings)
	}
	reminders(t, c, "orders", 50)
	described = must(c.Topic(ctx, "orders"))(t)
	if len(described.Totals) != 1 || described.Totals[0].Scheduled != 50 || len(described.Partitions) != 2 {
		t.Errorf("%+v", described)
	}
	moved := must(c.Move(ctx, "orders", dwell.Move{To: "orders-4", Partitions: 4}))(t)
	if !moved.Done || moved.Moved != 50 {
		t.Errorf("%+v", moved)
	}
	names := must(entries(0, c.Topics(ctx)))(t)
	if len(names) != 3 || names[2] != "orders-4" {
		t.Error(names)
	}
	if err := c.DeleteTopic(ctx, "copy"); err != nil {
		t.Error(err)
	}
	_, err := c.Topic(ctx, "copy")
	var refused *dwell.Error
	if !errors.As(err, &refused) || refused.Type != dwell.ErrNotFound || refused.Missing.Topic != "copy" {
		t.Error(err)
	}
}

func TestGroupsAreAdministered(t *testing.T) {
	ctx := context.Background()
	broker := dwelltest.Start(t)
	c := broker.Client
	refs := reminders(t, c, "orders", 20)
	must(c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{CopyOf: "default", Rate: dwell.Ptr(10.0)}))(t)
	paused := must(c.Pause(ctx, "orders", "audit", dwell.PauseFor(time.Hour)))(t)
	if paused.State != dwell.GroupPaused || paused.PausedUntil.IsZero() || paused.Rate != 10 {
		t.Errorf("%+v", paused)
	}
	for _, change := range []struct {
		settings dwell.GroupSettings
		fair     dwell.Fairness
		keyLimit int
		keyRate  float64
		keyBurst int
	}{
		{dwell.GroupSettings{Fair: dwell.FairnessKey}, dwell.FairnessKey, 0, 0, 0},
		{dwell.GroupSettings{Rate: dwell.Ptr(10.0)}, dwell.FairnessKey, 0, 0, 0},
		{dwell.GroupSettings{KeyMaxInFlight: dwell.Ptr(5)}, dwell.FairnessKey, 5, 0, 0},
		{dwell.GroupSettings{Rate: dwell.Ptr(20.0)}, dwell.FairnessKey, 5, 0, 0},
		{dwell.GroupSettings{KeyMaxInFlight: dwell.Ptr(0)}, dwell.FairnessKey, 0, 0, 0},
		{dwell.GroupSettings{KeyRate: dwell.Ptr(0.5)}, dwell.FairnessKey, 0, 0.5, 0},
		{dwell.GroupSettings{KeyBurst: dwell.Ptr(20)}, dwell.FairnessKey, 0, 0.5, 20},
		{dwell.GroupSettings{Rate: dwell.Ptr(30.0)}, dwell.FairnessKey, 0, 0.5, 20},
		{dwell.GroupSettings{KeyBurst: dwell.Ptr(1)}, dwell.FairnessKey, 0, 0.5, 0},
		{dwell.GroupSettings{KeyRate: dwell.Ptr(10.0), KeyBurst: dwell.Ptr(20)}, dwell.FairnessKey, 0, 10, 20},
		{dwell.GroupSettings{KeyRate: dwell.Ptr(0.0)}, dwell.FairnessKey, 0, 0, 0},
		{dwell.GroupSettings{KeyRate: dwell.Ptr(10.0)}, dwell.FairnessKey, 0, 10, 0},
		{dwell.GroupSettings{KeyRate: dwell.Ptr(0.0)}, dwell.FairnessKey, 0, 0, 0},
		{dwell.GroupSettings{Fair: dwell.FairnessNone}, "", 0, 0, 0},
	} {
		changed := must(c.CreateGroup(ctx, "orders", "audit", change.settings))(t)
		if changed.Fair != change.fair || changed.KeyMaxInFlight != change.keyLimit || changed.KeyRate != change.keyRate || changed.KeyBurst != change.keyBurst {
			t.Errorf("%+v", changed)
		}
	}
	weights := map[string]int{"gold_plan-*": 3, "customer-7": 5}
	limits := map[string]dwell.KeyLimit{"gold_plan-*": {MaxInFlight: dwell.Ptr(0), Rate: dwell.Ptr(10.0), Burst: dwell.Ptr(20)}}
	for _, change := range []struct {
		settings dwell.GroupSettings
		weights  map[string]int
		limits   map[string]dwell.KeyLimit
	}{
		{dwell.GroupSettings{Fair: dwell.FairnessKey, Weights: weights}, weights, nil},
		{dwell.GroupSettings{KeyLimits: limits}, weights, limits},
		{dwell.GroupSettings{Weights: map[string]int{}}, nil, limits},
		{dwell.GroupSettings{KeyLimits: map[string]dwell.KeyLimit{}}, nil, nil},
		{dwell.GroupSettings{Fair: dwell.FairnessNone}, nil, nil},
	} {
		changed := must(c.CreateGroup(ctx, "orders", "audit", change.settings))(t)
		if !reflect.DeepEqual(changed.Weights, change.weights) || !reflect.DeepEqual(changed.KeyLimits, change.limits) {
			t.Errorf("%+v", changed)
		}
	}
	if resumed := must(c.Resume(ctx, "orders", "audit"))(t); resumed.State == dwell.GroupPaused {
		t.Errorf("%+v", resumed)
	}
	if groups := must(c.Groups(ctx, "orders"))(t); len(groups) != 2 {
		t.Errorf("%+v", groups)
	}
	from, to := broker.Now(), broker.Now().Add(2*time.Hour)
	if waiting := must(c.CountDue(ctx, "orders", "default", from, to))(t); waiting != 20 {
		t.Error(waiting)
	}
	calls := 0
	postpone := dwell.BulkChange{Action: dwell.BulkPostpone, By: 3 * time.Hour, From: from, To: to, OnProgress: func(dwell.BulkResult) { calls++ }}
	if changed := must(c.Bulk(ctx, "orders", "default", postpone))(t); changed.Changed != 20 || calls == 0 {
		t.Error(changed, calls)
	}
	if m := must(c.Get(ctx, "orders", refs[0]))(t); m.DueAt.IsZero() || m.NextAt.Before(to) {
		t.Errorf("%+v, next at %v", m, m.NextAt)
	}
	explained := must(c.Explain(ctx, "orders", refs[0]))(t)
	if len(explained.Groups) != 2 || explained.ID != refs[0].ID {
		t.Errorf("%+v", explained)
	}
	if found := must(c.Verify(ctx, "orders", "default"))(t); found.Seen == 0 || len(found.Findings) != 0 {
		t.Errorf("%+v", found)
	}
	if counted := must(c.Purge(ctx, "orders", "default", dwell.Purge{All: true, DryRun: true}))(t); counted.Matching != 20 || counted.Purged != 0 {
		t.Errorf("%+v", counted)
	}
	if purged := must(c.Purge(ctx, "orders", "default", dwell.Purge{All: true}))(t); purged.Purged != 20 {
		t.Errorf("%+v", purged)
	}
	if err := c.DeleteGroup(ctx, "orders", "audit"); err != nil {
		t.Error(err)
	}
	if brokers := must(c.Brokers(ctx))(t); len(brokers) != 1 || !brokers[0].Here {
		t.Errorf("%+v", brokers)
	}
	if attention := must(c.Attention(ctx))(t); attention.Topics != 1 {
		t.Errorf("%+v", attention)
	}
}

func TestKeysOfAFairGroupArePaused(t *testing.T) {
	ctx := context.Background()
	broker := dwelltest.Start(t)
	c := broker.Client
	must(c.CreateTopic(ctx, "orders", dwell.TopicSettings{}))(t)
	must(c.CreateGroup(ctx, "orders", "audit", dwell.GroupSettings{Fair: dwell.FairnessKey}))(t)
	pause := must(c.PauseKey(ctx, "orders", "audit", "a/b ü", dwell.PauseFor(10*time.Minute)))(t)
	if pause.Key != "a/b ü" || !pause.PausedUntil.After(broker.Now()) {
		t.Errorf("%+v", pause)
	}
	until := pause.PausedUntil.Add(time.Minute)
	later := must(c.PauseKey(ctx, "orders", "audit", "later", dwell.PauseUntil(until)))(t)
	if later.Key != "later" || !later.PausedUntil.Equal(until) {
		t.Errorf("%+v", later)
	}
	if keys := must(c.Group(ctx, "orders", "audit"))(t).Keys; keys.PausedCount != 2 || !slices.Equal(keys.Paused, []dwell.KeyPause{pause, later}) {
		t.Errorf("%+v", keys)
	}
	for _, key := range []string{"a/b ü", "later"} {
		if resumed := must(c.ResumeKey(ctx, "orders", "audit", key))(t); resumed != (dwell.KeyPause{Key: key}) {
			t.Errorf("%+v", resumed)
		}
	}
	if keys := must(c.Group(ctx, "orders", "audit"))(t).Keys; keys.PausedCount != 0 || keys.Paused != nil {
		t.Errorf("%+v", keys)
	}
}

func TestCronJobsAreAdministered(t *testing.T) {
	ctx := context.Background()
	c := dwelltest.Start(t).Client
	nightly := dwell.NewCronJob{Cron: "0 3 * * *", TimeZone: "Europe/Berlin", Payload: []byte{0, 255}, Missed: dwell.MissedSkip, TTL: time.Hour}
	must(c.PutCron(ctx, "books", "nightly", nightly))(t)
	must(c.PutCron(ctx, "books", "hourly", dwell.NewCronJob{Every: time.Hour, Payload: map[string]int{"n": 1}, MaxAttempts: dwell.NoLimit}))(t)
	job := must(c.Cron(ctx, "books", "nightly"))(t)
	if string(job.Payload) != "\x00\xff" || job.TTL != time.Hour || job.Missed != dwell.MissedSkip || job.NextAt.IsZero() {
		t.Errorf("%+v", job)
	}
	if paused := must(c.PauseCron(ctx, "books", "nightly"))(t); paused.State != dwell.CronPaused || !paused.NextAt.IsZero() {
		t.Errorf("%+v", paused)
	}
	if resumed := must(c.ResumeCron(ctx, "books", "nightly"))(t); resumed.State != dwell.CronActive {
		t.Errorf("%+v", resumed)
	}
	if all := must(entries(0, c.Crons(ctx, "books")))(t); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	if err := errors.Join(c.DeleteCron(ctx, "books", "nightly"), c.DeleteCron(ctx, "books", "hourly")); err != nil {
		t.Error(err)
	}
}
