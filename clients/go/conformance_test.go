package dwell_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"example.com/dwell"
)

// invoke makes a call of a vector. take is how many entries of a list are read; 0 is all.
func invoke(t testing.TB, c *dwell.Client, name string, args object, take int) (any, error) {
	t.Helper()
	ctx, topic := context.Background(), text(args, "topic")
	switch name {
	case "push":
		return c.Push(ctx, topic, message(t, args))
	case "push_many":
		var messages []dwell.NewMessage
		given, _ := args["messages"].([]any)
		for _, fields := range given {
			messages = append(messages, message(t, fields.(object)))
		}
		for range number(args, "repeat") {
			messages = append(messages, dwell.NewMessage{Payload: payload(t, args)})
		}
		return c.PushMany(ctx, topic, messages)
	case "cancel":
		return c.Cancel(ctx, topic, ref(args))
	case "reschedule":
		return c.Reschedule(ctx, topic, ref(args), rescheduled(t, args))
	case "get":
		return c.Get(ctx, topic, ref(args), groups(args)...)
	case "cancel_many":
		return each(c.CancelMany(ctx, topic, refs(args)))
	case "reschedule_many":
		return each(c.RescheduleMany(ctx, topic, refs(args), rescheduled(t, args)))
	case "get_many":
		return each(c.GetMany(ctx, topic, refs(args), groups(args)...))
	case "explain":
		return c.Explain(ctx, topic, ref(args))
	case "list":
		return entries(take, c.List(ctx, topic, dwell.ListQuery{
			State: dwell.MessageState(text(args, "state")), Group: text(args, "group"), From: due(t, text(args, "from")), To: due(t, text(args, "to")),
			Order: dwell.Order(text(args, "order")), PageSize: number(args, "limit"),
		}))
	}
	return administer(t, c, name, args, take)
}

func administer(t testing.TB, c *dwell.Client, name string, args object, take int) (any, error) {
	t.Helper()
	ctx, topic, cron := context.Background(), text(args, "topic"), text(args, "name")
	settings, _ := args["settings"].(object)
	switch name {
	case "create_topic":
		return c.CreateTopic(ctx, topic, topicSettings(t, settings))
	case "topic":
		return c.Topic(ctx, topic)
	case "topics":
		return entries(take, c.Topics(ctx))
	case "delete_topic":
		return nil, c.DeleteTopic(ctx, topic)
	case "move":
		return c.Move(ctx, topic, dwell.Move{To: text(args, "to"), Partitions: number(args, "partitions")})
	case "put_cron":
		return c.PutCron(ctx, topic, cron, dwell.NewCronJob{
			Cron: text(settings, "cron"), TimeZone: text(settings, "time_zone"), Every: duration(t, text(settings, "every")),
			From: due(t, text(settings, "from")), Missed: dwell.Missed(text(settings, "missed")), TTL: duration(t, text(settings, "ttl")),
			MaxAttempts: attempts(settings), Payload: payload(t, settings), ContentType: text(settings, "content_type"), Meta: texts(settings, "meta"),
		})
	case "cron":
		return c.Cron(ctx, topic, cron)
	case "crons":
		return entries(take, c.Crons(ctx, topic))
	case "pause_cron":
		return c.PauseCron(ctx, topic, cron)
	case "resume_cron":
		return c.ResumeCron(ctx, topic, cron)
	case "delete_cron":
		return nil, c.DeleteCron(ctx, topic, cron)
	case "brokers":
		return c.Brokers(ctx)
	case "attention":
		return c.Attention(ctx)
	}
	return administerGroup(t, c, name, args, take)
}

func windowOf(settings object) *dwell.DeliveryWindow {
	given, is := settings["window"].(object)
	if !is {
		return nil
	}
	window := dwell.DeliveryWindow{From: text(given, "from"), To: text(given, "to"), TimeZone: text(given, "time_zone")}
	days, _ := given["days"].([]any)
	for _, day := range days {
		window.Days = append(window.Days, dwell.Weekday(day.(string)))
	}
	return &window
}

// weightsOf are the weights of settings; nil if none are given.
func weightsOf(settings object) map[string]int {
	given, is := settings["weights"].(object)
	if !is {
		return nil
	}
	weights := map[string]int{}
	for pattern := range given {
		weights[pattern] = number(given, pattern)
	}
	return weights
}

// keyLimitsOf are the limits of some keys of settings; nil if none are given.
func keyLimitsOf(settings object) map[string]dwell.KeyLimit {
	given, is := settings["key_limits"].(object)
	if !is {
		return nil
	}
	limits := map[string]dwell.KeyLimit{}
	for pattern, fields := range given {
		limit := fields.(object)
		rate, _ := limit["rate"].(float64)
		limits[pattern] = dwell.KeyLimit{
			MaxInFlight: pointer(limit, "max_in_flight", number(limit, "max_in_flight")),
			Rate:        pointer(limit, "rate", rate),
			Burst:       pointer(limit, "burst", number(limit, "burst")),
		}
	}
	return limits
}

func administerGroup(t testing.TB, c *dwell.Client, name string, args object, take int) (any, error) {
	t.Helper()
	ctx, topic, group := context.Background(), text(args, "topic"), text(args, "group")
	settings, _ := args["settings"].(object)
	switch name {
	case "groups":
		return c.Groups(ctx, topic)
	case "group":
		return c.Group(ctx, topic, group)
	case "create_group":
		rate, _ := settings["rate"].(float64)
		keyRate, _ := settings["key_rate"].(float64)
		return c.CreateGroup(ctx, topic, group, dwell.GroupSettings{
			CopyOf: text(settings, "copy_of"), Rate: pointer(settings, "rate", rate),
			MaxInFlight:    pointer(settings, "max_in_flight", number(settings, "max_in_flight")),
			Window:         windowOf(settings),
			Fair:           dwell.Fairness(text(settings, "fair")),
			KeyMaxInFlight: pointer(settings, "key_max_in_flight", number(settings, "key_max_in_flight")),
			KeyRate:        pointer(settings, "key_rate", keyRate),
			KeyBurst:       pointer(settings, "key_burst", number(settings, "key_burst")),
			Weights:        weightsOf(settings),
			KeyLimits:      keyLimitsOf(settings),
		})
	case "delete_group":
		return nil, c.DeleteGroup(ctx, topic, group)
	case "pause":
		var opts []dwell.PauseOption
		if span := text(args, "for"); span != "" {
			opts = append(opts, dwell.PauseFor(duration(t, span)))
		}
		return c.Pause(ctx, topic, group, opts...)
	case "resume":
		return c.Resume(ctx, topic, group)
	case "pause_key":
		return c.PauseKey(ctx, topic, group, text(args, "key"), endOf(t, args))
	case "resume_key":
		return c.ResumeKey(ctx, topic, group, text(args, "key"))
	case "purge":
		return c.Purge(ctx, topic, group, dwell.Purge{All: isTrue(args, "all"), DeadLetters: isTrue(args, "dead_letters"), DryRun: isTrue(args, "dry_run")})
	case "forecast":
		return c.Forecast(ctx, topic, group, duration(t, text(args, "step")), number(args, "spans"))
	case "verify":
		return c.Verify(ctx, topic, group)
	case "repair":
		return c.Repair(ctx, topic, group)
	case "bulk_count":
		waiting, err := c.CountDue(ctx, topic, group, due(t, text(args, "from")), due(t, text(args, "to")))
		return struct{ Waiting int64 }{waiting}, err
	case "bulk":
		return c.Bulk(ctx, topic, group, dwell.BulkChange{
			Action: dwell.BulkAction(text(args, "action")), By: duration(t, text(args, "by")), From: due(t, text(args, "from")), To: due(t, text(args, "to")),
		})
	case "dead_letters":
		return entries(take, c.DeadLetters(ctx, topic, group, dwell.DeadLetterQuery{
			Reason: dwell.DeathReason(text(args, "reason")), OlderThan: duration(t, text(args, "older_than")),
			YoungerThan: duration(t, text(args, "younger_than")), Text: text(args, "text"), Order: dwell.Order(text(args, "order")),
			PageSize: number(args, "limit"),
		}))
	case "redrive":
		return c.Redrive(ctx, topic, group, selection(t, args))
	case "purge_dead_letters":
		return c.PurgeDeadLetters(ctx, topic, group, selection(t, args))
	}
	t.Fatalf("no call is named %s", name)
	return nil, nil
}

// endOf is the end of the pause of a key; nil if none is given.
func endOf(t testing.TB, args object) dwell.PauseOption {
	t.Helper()
	if span := text(args, "for"); span != "" {
		return dwell.PauseFor(duration(t, span))
	}
	if until := text(args, "until"); until != "" {
		return dwell.PauseUntil(due(t, until))
	}
	return nil
}

func rescheduled(t testing.TB, args object) dwell.Reschedule {
	t.Helper()
	return dwell.Reschedule{
		Delay: duration(t, text(args, "delay")), DueAt: due(t, text(args, "due_at")), Now: text(args, "delay") == "0s",
		Past: dwell.Past(text(args, "past")), ETag: text(args, "etag"),
	}
}

func groups(args object) (opts []dwell.GetOption) {
	if group, ok := args["group"].(string); ok {
		opts = append(opts, dwell.InGroup(group))
	}
	return opts
}

func selection(t testing.TB, args object) dwell.Selection {
	t.Helper()
	which := dwell.Selection{
		All: isTrue(args, "all"), Reason: dwell.DeathReason(text(args, "reason")), OlderThan: duration(t, text(args, "older_than")),
		YoungerThan: duration(t, text(args, "younger_than")), Text: text(args, "text"), Limit: int64(number(args, "limit")),
		Rate: number(args, "rate"), DryRun: isTrue(args, "dry_run"),
	}
	ids, _ := args["ids"].([]any)
	for _, id := range ids {
		which.IDs = append(which.IDs, id.(string))
	}
	return which
}

// entries reads a list, up to so many entries.
func entries[T any](take int, list iter.Seq2[T, error]) (result []T, err error) {
	for entry, err := range list {
		if err != nil {
			return result, err
		}
		if result = append(result, entry); len(result) == take {
			break
		}
	}
	return result, nil
}

// each is what a vector says of many results: the value of each, or its error. A ManyError has to say how many failed.
func each[T any](results []dwell.Result[T], err error) (any, error) {
	items := []any{}
	failed := 0
	for _, result := range results {
		if result.Err != nil {
			failed++
			items = append(items, object{"error": asRaised(result.Err)})
		} else {
			items = append(items, plainOf(result.Value))
		}
	}
	var wrong *dwell.ArgumentError
	if errors.As(err, &wrong) {
		return nil, err
	}
	var many *dwell.ManyError
	if errors.As(err, &many) && many.Failed == failed && many.Total == len(results) || failed == 0 {
		return items, nil
	}
	return nil, err
}

// asRaised is what a vector says of an error.
func asRaised(err error) object {
	result := object{"has_cause": false}
	var wrong *dwell.ArgumentError
	var many *dwell.ManyError
	var refused *dwell.Error
	switch {
	case errors.As(err, &wrong):
		result["kind"] = "argument"
	case errors.Is(err, context.Canceled):
		result["kind"] = "cancelled"
	case errors.Is(err, dwell.ErrClosed):
		result["kind"] = "closed"
	case errors.As(err, &many):
		result["kind"] = "push_many"
	case errors.Is(err, dwell.ErrUnavailable):
		result["kind"] = "unavailable"
	default:
		result["kind"] = "refused"
	}
	if errors.As(err, &refused) {
		for name, value := range plainOf(refused.Problem).(object) {
			result[name] = value
		}
		result["repeated"], result["has_cause"] = refused.Repeated, errors.Unwrap(refused) != nil
	}
	return result
}

// raised checks an error against what a vector says. results are those of a PushMany.
func raised(t testing.TB, server string, expected object, err error, results any) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, expected %v", expected)
	}
	actual := asRaised(err)
	actual["results"] = plainOf(results)
	has, _ := expected["text_has"].([]any)
	for _, part := range has {
		if part := strings.ReplaceAll(part.(string), "<server>", server); !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not have %q", err, part)
		}
	}
	delete(expected, "text_has")
	if why := differs(expected, actual); why != "" {
		t.Errorf("%s, of the error %v", why, err)
	}
}

// isOfGo reports whether Go can say what a call says. An empty text is no text, so an id or a key that is given as an empty one is
// not to be told from none: such a call counts as refused. Only a call about a key itself always has one.
func isOfGo(call string, args object) bool {
	isOfKey := call == "pause_key" || call == "resume_key"
	for _, name := range []string{"id", "key"} {
		if value, ok := args[name].(string); ok && value == "" && (name == "key" && !isOfKey || call == "push") {
			return false
		}
	}
	messages, _ := args["messages"].([]any)
	for _, fields := range messages {
		if !isOfGo("push", fields.(object)) && call == "push_many" {
			return false
		}
	}
	return true
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

type vector struct {
	Client struct {
		RetryFor string `json:"retry_for"`
	}
	Token *string
	Calls []struct {
		Call         string
		Args         object
		Take         int
		Returns      any
		ReturnsCount int `json:"returns_count"`
		Raises       object
	}
	Producer object
	Steps    []step
	Worker   object
	Handlers map[string]script
	Stop     *struct {
		When object
	}
	Stats  object
	Raises object
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
			opts := []dwell.Option{dwell.Timeout(10 * time.Second)}
			switch v.Client.RetryFor {
			case "default":
			case "":
				opts = append(opts, dwell.RetryFor(30*time.Second))
			default:
				opts = append(opts, dwell.RetryFor(duration(t, v.Client.RetryFor)))
			}
			if v.Token != nil {
				opts = append(opts, dwell.TokenFile(begun.TokenFile))
			}
			c, err := dwell.New(begun.Server, opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			play(t, c, begun.Server, v)
		})
	}
}

func play(t *testing.T, c *dwell.Client, server string, v vector) {
	if v.Worker != nil {
		work(t, c, server, v)
	}
	if v.Producer != nil {
		gather(t, c, server, v)
	}
	for _, step := range v.Calls {
		if !isOfGo(step.Call, step.Args) {
			continue
		}
		result, err := invoke(t, c, step.Call, step.Args, step.Take)
		if step.Raises != nil {
			raised(t, server, step.Raises, err, result)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if why := differs(step.Returns, plainOf(result)); step.Returns != nil && why != "" {
			t.Error(why)
		}
		if results, ok := result.([]dwell.PushResult); ok && step.ReturnsCount > 0 && len(results) != step.ReturnsCount {
			t.Errorf("%d results, expected %d", len(results), step.ReturnsCount)
		}
	}
}
