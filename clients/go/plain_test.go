package dwell_test

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/dwell"
)

type object = map[string]any

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
	if expected != actual {
		return fmt.Sprintf("%v, expected %v", actual, expected)
	}
	return ""
}

var capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// plain is a value of the client with the names and forms of the broker's answers.
func plain(value reflect.Value) any {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return nil
		}
		return plain(value.Elem())
	case reflect.Struct:
		if at, ok := value.Interface().(time.Time); ok {
			if at.IsZero() {
				return nil
			}
			return at.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		fields := object{}
		addFields(fields, value)
		return fields
	case reflect.Slice:
		items := make([]any, value.Len())
		for n := range items {
			items[n] = plain(value.Index(n))
		}
		return items
	case reflect.Map:
		fields := object{}
		for _, key := range value.MapKeys() {
			fields[key.String()] = plain(value.MapIndex(key))
		}
		return fields
	case reflect.String:
		return value.String()
	case reflect.Int, reflect.Int64:
		if d, ok := value.Interface().(time.Duration); ok {
			return float64(d.Milliseconds())
		}
		return float64(value.Int())
	case reflect.Float64:
		return value.Float()
	case reflect.Bool:
		return value.Bool()
	default:
		return nil
	}
}

func addFields(fields object, value reflect.Value) {
	for n := range value.NumField() {
		field := value.Type().Field(n)
		if field.Anonymous {
			addFields(fields, value.Field(n))
			continue
		}
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			name = strings.ToLower(capital.ReplaceAllString(field.Name, "${1}_${2}"))
		}
		switch given := value.Field(n).Interface().(type) {
		case time.Duration, *time.Duration, []time.Duration:
			name += "_ms"
		case []byte:
			fields["payload_text"], fields["payload_base64"] = string(given), base64.StdEncoding.EncodeToString(given)
			continue
		}
		fields[name] = plain(value.Field(n))
	}
	if topic, ok := fields["dead_letter_topic"].(string); ok {
		fields["dead_letter"] = object{"topic": topic}
	}
}

func plainOf(value any) any { return plain(reflect.ValueOf(&value).Elem()) }

func text(fields object, name string) string {
	value, _ := fields[name].(string)
	return value
}

func number(fields object, name string) int {
	value, _ := fields[name].(float64)
	return int(value)
}

func isTrue(fields object, name string) bool {
	value, _ := fields[name].(bool)
	return value
}

func duration(t testing.TB, value string) time.Duration {
	t.Helper()
	if value == "" {
		return 0
	}
	if days, ok := strings.CutSuffix(value, "d"); ok {
		count, err := strconv.Atoi(days)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(count) * 24 * time.Hour
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

// pointer is nil if the field is absent.
func pointer[T any](fields object, name string, value T) *T {
	if _, ok := fields[name]; !ok {
		return nil
	}
	return &value
}

func texts(fields object, name string) map[string]string {
	given, ok := fields[name].(object)
	if !ok {
		return nil
	}
	result := map[string]string{}
	for name := range given {
		result[name] = text(given, name)
	}
	return result
}

func payload(t testing.TB, fields object) any {
	t.Helper()
	if value, ok := fields["payload_json"]; ok {
		return value
	}
	if value := text(fields, "payload_base64"); value != "" {
		bytes, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	if times := number(fields, "times"); times > 0 {
		return strings.Repeat(text(fields, "payload"), times)
	}
	return fields["payload"]
}

// attempts is a number of attempts, of which 0 is without a limit.
func attempts(fields object) int {
	if value, ok := fields["max_attempts"].(float64); ok && value == 0 {
		return dwell.NoLimit
	}
	return number(fields, "max_attempts")
}

func message(t testing.TB, fields object) dwell.NewMessage {
	t.Helper()
	return dwell.NewMessage{
		Payload: payload(t, fields), ID: text(fields, "id"), Key: text(fields, "key"), Delay: duration(t, text(fields, "delay")),
		DueAt: due(t, text(fields, "due_at")), Past: dwell.Past(text(fields, "past")), TTL: duration(t, text(fields, "ttl")),
		Priority: number(fields, "priority"), MaxAttempts: attempts(fields), DedupKey: text(fields, "dedup_key"),
		DedupFor: duration(t, text(fields, "dedup_for")), Spread: duration(t, text(fields, "spread")), Conflict: dwell.Conflict(text(fields, "conflict")),
		DebounceMax: duration(t, text(fields, "debounce_max")), ContentType: text(fields, "content_type"), Meta: texts(fields, "meta"),
	}
}

func ref(fields object) dwell.Ref { return dwell.Ref{ID: text(fields, "id"), Key: text(fields, "key")} }

func refs(fields object) (result []dwell.Ref) {
	given, _ := fields["messages"].([]any)
	for _, one := range given {
		result = append(result, ref(one.(object)))
	}
	return result
}

func topicSettings(t testing.TB, fields object) dwell.TopicSettings {
	t.Helper()
	span := func(name string) *time.Duration { return pointer(fields, name, duration(t, text(fields, name))) }
	settings := dwell.TopicSettings{
		Partitions: pointer(fields, "partitions", number(fields, "partitions")), VisibilityTimeout: span("visibility_timeout"),
		MaxAttempts: pointer(fields, "max_attempts", number(fields, "max_attempts")), DedupWindow: span("dedup_window"),
		Ordering: pointer(fields, "ordering", dwell.Ordering(text(fields, "ordering"))), TTL: span("ttl"),
		OnExpiry: pointer(fields, "on_expiry", dwell.Expiry(text(fields, "on_expiry"))), DeadMaxAge: span("dead_max_age"),
		DeadMaxCount: pointer(fields, "dead_max_count", int64(number(fields, "dead_max_count"))), Annotations: texts(fields, "annotations"),
	}
	if letter, ok := fields["dead_letter"].(object); ok {
		settings.DeadLetterTopic = dwell.Ptr(text(letter, "topic"))
	}
	if backoff, ok := fields["backoff"].(object); ok {
		factor, _ := backoff["factor"].(float64)
		jitter, _ := backoff["jitter"].(float64)
		settings.Backoff = &dwell.Backoff{
			Kind: dwell.BackoffKind(text(backoff, "kind")), Initial: duration(t, text(backoff, "initial")), Max: duration(t, text(backoff, "max")),
			Factor: factor, Jitter: jitter,
		}
		steps, _ := backoff["steps"].([]any)
		for _, step := range steps {
			settings.Backoff.Steps = append(settings.Backoff.Steps, duration(t, step.(string)))
		}
	}
	return settings
}
