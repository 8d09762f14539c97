package dwell

import (
	"crypto/rand"
	"encoding/json"
	"net/url"
	"sync"
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

// Ptr is a pointer to a value, for fields of TopicSettings, GroupSettings and KeyLimit.
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

const (
	// A run of ids ends after so many, and after this time, so that a slow producer spreads its messages.
	runIDs    = 250
	runMillis = 5
	crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// idRun makes ULIDs that count up for a while. Those share all but the last three characters, so the broker keeps messages that are pushed
// together in one partition.
type idRun struct {
	mutex  sync.Mutex
	begun  int64
	prefix [23]byte
	used   int
}

// ids is the run of all clients of the process.
var ids idRun

// newULID makes a ULID: sortable by time, unique.
func newULID() string { return ids.next(time.Now().UnixMilli()) }

func (r *idRun) next(now int64) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.used == 0 || r.used == runIDs || now < r.begun || now >= r.begun+runMillis {
		r.begin(now)
	}
	text := append(make([]byte, 0, 26), r.prefix[:]...)
	text = append(text, crockford[r.used>>10&31], crockford[r.used>>5&31], crockford[r.used&31])
	r.used++
	return string(text)
}

func (r *idRun) begin(now int64) {
	r.begun, r.used = now, 0
	_, _ = rand.Read(r.prefix[10:])
	for n, ms := 9, now; n >= 0; n, ms = n-1, ms>>5 {
		r.prefix[n] = crockford[ms&31]
	}
	for n := 10; n < len(r.prefix); n++ {
		r.prefix[n] = crockford[r.prefix[n]&31]
	}
}
