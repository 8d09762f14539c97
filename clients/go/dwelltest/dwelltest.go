// Package dwelltest runs a broker for tests, whose time they move:
//
//	broker := dwelltest.Start(t)
//	_, err := broker.Client.Push(ctx, "reminders", dwell.NewMessage{Payload: "renew", Delay: 30 * 24 * time.Hour})
//	moved := broker.Advance(30 * 24 * time.Hour)
package dwelltest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/dwell"
)

const (
	stopTimeout = 30 * time.Second
	// Many cron jobs may fire before the answer.
	moveTimeout = 5 * time.Minute
)

// Broker on a test clock.
type Broker struct {
	// Server is its address.
	Server string
	Client *dwell.Client
	t      testing.TB
	http   *http.Client
}

// Moved is the outcome of a move of the clock.
type Moved struct {
	Now time.Time
	// Due are the groups in which messages became due.
	Due []Due
	// Fired are the cron jobs that fired.
	Fired []Fired
	// TimedOut counts deliveries whose visibility timeout passed.
	TimedOut int `json:"timed_out"`
}

// Due are messages of a group that became due.
type Due struct {
	Topic, Group string
	Messages     int
}

// Fired is a cron job, with the number of its occurrences.
type Fired struct {
	Topic, Name string
	Times       int
}

// move is a request to move the clock.
type move struct {
	AdvanceMS *int64     `json:"advance_ms,omitempty"`
	To        *time.Time `json:"to,omitempty"`
}

// Start runs dwell serve --test-clock on a free port with a temporary directory, until the test ends. DWELL_BIN names the program,
// and else it is dwell in PATH.
func Start(t testing.TB) *Broker {
	t.Helper()
	command := exec.Command(cmp.Or(os.Getenv("DWELL_BIN"), "dwell"),
		"serve", "--test-clock", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--log-level", "error")
	// Nothing from the environment may change what it does.
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "DWELL_") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("dwelltest: %v; DWELL_BIN may name the program", err)
	}
	t.Cleanup(func() { stop(command) })
	server, err := address(stdout)
	if err != nil {
		t.Fatalf("dwelltest: dwell serve --test-clock: %v", err)
	}
	client, err := dwell.New(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &Broker{server, client, t, &http.Client{Timeout: moveTimeout}}
}

// address is what the broker prints once it serves.
func address(stdout io.Reader) (string, error) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "address" {
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return words[1], nil
		}
	}
	return "", fmt.Errorf("ended before it served: %v", lines.Err())
}

func stop(command *exec.Cmd) {
	_ = command.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(stopTimeout, func() { _ = command.Process.Kill() })
	_ = command.Wait()
	timer.Stop()
}

// Advance moves time forward. Once it returns, messages that became due can be received.
func (b *Broker) Advance(by time.Duration) Moved {
	b.t.Helper()
	ms := (by + time.Millisecond - 1).Milliseconds()
	return b.move(move{AdvanceMS: &ms})
}

// AdvanceTo moves time forward to a time that is not past.
func (b *Broker) AdvanceTo(to time.Time) Moved {
	b.t.Helper()
	return b.move(move{To: &to})
}

// Now is the time of messages.
func (b *Broker) Now() time.Time {
	b.t.Helper()
	var clock Moved
	b.call(http.MethodGet, "/v1/test/clock", nil, &clock)
	return clock.Now
}

// move is never repeated: the clock would move again.
func (b *Broker) move(request move) (moved Moved) {
	b.t.Helper()
	b.call(http.MethodPost, "/v1/test/clock", request, &moved)
	return moved
}

func (b *Broker) call(method, path string, body any, result any) {
	b.t.Helper()
	if err := b.try(method, path, body, result); err != nil {
		b.t.Fatalf("dwelltest: %s %s: %v", method, path, err)
	}
}

func (b *Broker) try(method, path string, body any, result any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, b.Server+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	if body == nil {
		request.Body = http.NoBody
		request.ContentLength = 0
	} else {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := b.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s", response.Status, raw)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(raw, result)
}
