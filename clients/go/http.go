package dwell

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The broker closes idle connections after 75 seconds.
const idleTimeout = 50 * time.Second

// ErrUnavailable matches, with errors.Is, an Error that stayed until the end of RetryFor: there was no answer, or none that is
// final. A push may be stored: push again with the same id and key.
var ErrUnavailable = errors.New("dwell: unavailable")

var errInterrupted = errors.New("interrupted")

// Error is a request that the broker refused, or did not answer.
type Error struct {
	// Status is the HTTP status, or 0 without an answer.
	Status int
	// Type is stable, such as "not-found".
	Type      string
	Detail    string
	RequestID string
	// RetryAfter is how long the broker asks to wait.
	RetryAfter time.Duration
	// Repeated says that an earlier try had no answer and may have succeeded. Then the types "conflict" and
	// "precondition-failed" may be its doing.
	Repeated bool
	// Problem is the whole answer, as JSON.
	Problem     json.RawMessage
	unavailable bool
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return "dwell: " + e.Detail
	}
	return fmt.Sprintf("dwell: %d %s: %s", e.Status, e.Type, e.Detail)
}

// Is reports whether the error stayed until the end of RetryFor, for ErrUnavailable.
func (e *Error) Is(target error) bool { return target == ErrUnavailable && e.unavailable }

// mayPass reports whether the same request may succeed later.
func (e *Error) mayPass() bool {
	switch e.Status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// backoff is how long to wait before try number tries + 1: exponential, with jitter.
func backoff(tries int, first, most time.Duration) time.Duration {
	wait := min(most, first<<min(tries, 16))
	return wait/2 + rand.N(wait/2+1)
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// interrupt ends a request early. An answer that is already on its way is still read.
type interrupt struct {
	mutex  sync.Mutex
	conn   net.Conn
	isSet  bool
	cancel context.CancelFunc
}

func (i *interrupt) watch(conn net.Conn) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.conn = conn
	if i.isSet {
		i.shut()
	}
}

func (i *interrupt) set() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.isSet = true
	i.shut()
}

func (i *interrupt) wasSet() bool {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.isSet
}

func (i *interrupt) shut() {
	// The broker ends the request when the client can send nothing more.
	if conn, ok := i.conn.(interface{ CloseWrite() error }); ok {
		_ = conn.CloseWrite()
	}
	if i.cancel != nil {
		time.AfterFunc(time.Second, i.cancel)
	}
}

// transport sends requests to a broker. It may be used by many goroutines.
type transport struct {
	base     string
	client   *http.Client
	token    *token
	timeout  time.Duration
	retryFor time.Duration
}

type call struct {
	method, path string
	body         []byte
	header       http.Header
	timeout      time.Duration
	retryFor     time.Duration
	interrupt    *interrupt
}

func newTransport(server, caFile string) (*transport, error) {
	base := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
	}
	t := &transport{base: strings.TrimSuffix(server, "/"), client: &http.Client{Transport: base}, token: &token{}}
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		dial := base.DialContext
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) }
		t.base = "http://localhost"
		return t, nil
	}
	address, err := url.Parse(t.base)
	if err != nil || address.Host == "" || address.Path != "" || (address.Scheme != "http" && address.Scheme != "https") {
		return nil, fmt.Errorf("dwell: server %q: expected http://HOST:PORT, https://HOST:PORT or unix:/PATH", server)
	}
	if address.Scheme == "http" && address.Port() == "" {
		t.base += ":7373"
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("dwell: %w", err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		base.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

// sibling is the same with connections that nothing else uses: behind a load balancer they stay with one broker.
func (t *transport) sibling() *transport {
	sibling := *t
	if base, ok := t.client.Transport.(*http.Transport); ok {
		sibling.client = &http.Client{Transport: base.Clone()}
	}
	return &sibling
}

// do sends a request until its answer is final or retryFor is over, and decodes the answer into result.
func (t *transport) do(ctx context.Context, c call, result any) error {
	until := time.Now().Add(c.retryFor)
	isOpen := false
	for tries := 0; ; tries++ {
		err := t.once(ctx, c, result)
		var refused *Error
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		refused.Repeated = isOpen
		isOpen = isOpen || refused.Status == 0 || refused.Status == http.StatusGatewayTimeout
		if !refused.mayPass() {
			return err
		}
		wait := max(refused.RetryAfter, backoff(tries, 50*time.Millisecond, 2*time.Second))
		if time.Now().Add(wait).After(until) {
			refused.unavailable = true
			return refused
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (t *transport) once(ctx context.Context, c call, result any) error {
	token, err := t.token.read(false)
	if err != nil {
		return err
	}
	for {
		answer, isReused, err := t.exchange(ctx, c, token)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && c.interrupt != nil && c.interrupt.wasSet():
			return errInterrupted
		case err != nil && isReused && !errors.Is(err, context.DeadlineExceeded):
			// The broker closed it meanwhile, and probably the others, too.
			t.client.CloseIdleConnections()
			continue
		case err != nil:
			return &Error{Detail: err.Error()}
		}
		if answer.status == http.StatusUnauthorized {
			if now, err := t.token.read(true); err == nil && now != token {
				token = now
				continue
			}
		}
		return answer.decode(result)
	}
}

type answer struct {
	status int
	header http.Header
	raw    []byte
}

func (t *transport) exchange(ctx context.Context, c call, token string) (a answer, isReused bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if c.interrupt != nil {
		c.interrupt.mutex.Lock()
		c.interrupt.cancel = cancel
		c.interrupt.mutex.Unlock()
		defer c.interrupt.watch(nil)
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		isReused = info.Reused
		if c.interrupt != nil {
			c.interrupt.watch(info.Conn)
		}
	}})
	request, err := http.NewRequestWithContext(ctx, c.method, t.base+c.path, bytes.NewReader(c.body))
	if err != nil {
		return a, false, err
	}
	// A request is repeated here, with what is known of it.
	request.GetBody = nil
	for name, values := range c.header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := t.client.Do(request)
	if err != nil {
		return a, isReused, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, raw}, isReused, err
}

func (a answer) decode(result any) error {
	var problem struct {
		Type      string            `json:"type"`
		Detail    string            `json:"detail"`
		RequestID string            `json:"request_id"`
		Results   []json.RawMessage `json:"results"`
	}
	err := json.Unmarshal(a.raw, &problem)
	// A problem with verdicts or results is an answer to read: only some of it failed.
	if a.status < 300 || len(problem.Results) > 0 {
		if err = json.Unmarshal(a.raw, result); err != nil {
			return &Error{Detail: "the answer is not what a broker writes: " + err.Error()}
		}
		return nil
	}
	if err != nil {
		problem.Detail = string(a.raw[:min(len(a.raw), 200)])
	}
	seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
	return &Error{
		Status: a.status, Type: strings.TrimPrefix(problem.Type, "urn:dwell:error:"), Detail: problem.Detail,
		RequestID: problem.RequestID, RetryAfter: time.Duration(seconds) * time.Second, Problem: a.raw,
	}
}

// token is the token in a file, read again when the file changes.
type token struct {
	file  string
	mutex sync.Mutex
	seen  os.FileInfo
	text  string
}

func (t *token) read(again bool) (string, error) {
	if t.file == "" {
		return "", nil
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	info, err := os.Stat(t.file)
	if err == nil && (again || t.seen == nil || !os.SameFile(info, t.seen) || info.ModTime() != t.seen.ModTime() || info.Size() != t.seen.Size()) {
		var text []byte
		if text, err = os.ReadFile(t.file); err == nil {
			t.text, t.seen = strings.TrimSpace(string(text)), info
		}
	}
	// A file that is being replaced may be absent for a moment.
	if err != nil && t.text == "" {
		return "", &Error{Detail: "token file: " + err.Error()}
	}
	return t.text, nil
}
