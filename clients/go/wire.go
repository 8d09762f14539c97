package dwell

import (
	"crypto/rand"
	"encoding/json"
	"net/url"
	"time"
	"unicode/utf8"
)

// millis is a duration in whole milliseconds, as the broker reads and writes it. It rounds up, so that nothing is due early.
type millis time.Duration

func (m millis) MarshalJSON() ([]byte, error) { return json.Marshal(milliseconds(time.Duration(m))) }

func (m *millis) UnmarshalJSON(data []byte) error {
	var count int64
	err := json.Unmarshal(data, &count)
	*m = millis(time.Duration(count) * time.Millisecond)
	return err
}

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	if d > 0 {
		d += time.Millisecond - 1
	}
	return int64(d / time.Millisecond)
}

// ms is a duration for a field that is absent if it is 0.
func ms(d time.Duration) *millis { return optional(millis(d)) }

// optional is nil for the zero value.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// Ptr is a pointer to a value, for fields of TopicSettings and GroupSettings.
func Ptr[T any](value T) *T { return &value }

// payloadFields is a payload in a request.
type payloadFields struct {
	Text   *string `json:"payload,omitempty"`
	Base64 *[]byte `json:"payload_base64,omitempty"`
	JSON   *any    `json:"payload_json,omitempty"`
}

func payloadOf(value any) payloadFields {
	switch payload := value.(type) {
	case []byte:
		if payload == nil {
			payload = []byte{}
		}
		return payloadFields{Base64: &payload}
	case string:
		if !utf8.ValidString(payload) {
			// JSON has only Unicode.
			bytes := []byte(payload)
			return payloadFields{Base64: &bytes}
		}
		return payloadFields{Text: &payload}
	default:
		return payloadFields{JSON: &value}
	}
}

// payload is the payload in an answer.
type payload struct {
	Text   *string `json:"payload"`
	Base64 []byte  `json:"payload_base64"`
}

func (p payload) bytes() []byte {
	if p.Text != nil {
		return []byte(*p.Text)
	}
	return p.Base64
}

// readPayload reads the payload of an answer.
func readPayload(data []byte, into *[]byte) error {
	var p payload
	err := json.Unmarshal(data, &p)
	*into = p.bytes()
	return err
}

// pathOf is a path below /v1/topics: each part is encoded.
func pathOf(parts ...string) string {
	path := "/v1/topics"
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// withQuery adds the parameters that are not empty.
func withQuery(path string, query url.Values) string {
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// atTime is a time as a parameter.
func atTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// newULID makes a ULID: sortable by time, unique.
func newULID() string {
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var random [16]byte
	_, _ = rand.Read(random[:])
	text := make([]byte, 26)
	for n, ms := 9, time.Now().UnixMilli(); n >= 0; n, ms = n-1, ms>>5 {
		text[n] = alphabet[ms&31]
	}
	for n := range random {
		text[10+n] = alphabet[random[n]&31]
	}
	return string(text)
}
