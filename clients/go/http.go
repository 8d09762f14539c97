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

// shortestTry is how long an answer is waited for at least.
const shortestTry = time.Second

var errInterrupted = errors.New("interrupted")

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
	// server is the address as it is shown, and base is where requests go.
	server, base string
	client       *http.Client
	token        *token
	timeout      time.Duration
	retryFor     time.Duration
}

type call struct {
	method, path string
	body         []byte
	header       http.Header
	timeout      time.Duration
	retryFor     time.Duration
	// isWithin ends also a single try at the end of retryFor.
	isWithin bool
	// isOnce never repeats what may have been carried out.
	isOnce    bool
	interrupt *interrupt
	// etag receives the header of the answer.
	etag *string
}

func newTransport(server, caFile string) (*transport, error) {
	base := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
	}
	t := &transport{server: server, base: strings.TrimSuffix(server, "/"), client: &http.Client{Transport: base}, token: &token{}}
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		dial := base.DialContext
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) }
		t.base = "http://localhost"
		return t, nil
	}
	address, err := url.Parse(t.base)
	if err != nil || address.Host == "" || address.Path != "" || (address.Scheme != "http" && address.Scheme != "https") {
		return nil, wrong("server", fmt.Sprintf("is %q, and not http://HOST:PORT, https://HOST:PORT or unix:/PATH", server))
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
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("dwell: %s has no certificate in PEM", caFile)
		}
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
	var last error
	for tries := 0; ; tries++ {
		try := c
		if c.isWithin && c.retryFor > 0 {
			try.timeout = min(c.timeout, max(time.Until(until), shortestTry))
		}
		err := t.once(ctx, try, result)
		var refused *Error
		switch {
		case err == nil || errors.Is(err, errInterrupted):
			return err
		case ctx.Err() != nil:
			return t.ended(ctx, last)
		case !errors.As(err, &refused):
			return err
		}
		refused.Repeated = isOpen
		isOpen = isOpen || refused.isOpen()
		if !refused.mayPass() {
			return err
		}
		wait := max(refused.RetryAfter, backoff(tries, 50*time.Millisecond, 2*time.Second))
		if c.isOnce && isOpen || time.Now().Add(wait).After(until) {
			refused.unavailable = true
			return refused
		}
		last = refused
		if err := sleep(ctx, wait); err != nil {
			return t.ended(ctx, last)
		}
	}
}

// ended is the error of a call whose context ended: that of the context. The last try is told, but is not its cause.
func (t *transport) ended(ctx context.Context, last error) error {
	if last == nil {
		return fmt.Errorf("dwell: %s: %w", t.server, ctx.Err())
	}
	return fmt.Errorf("dwell: %s: %w; the last try: %v", t.server, ctx.Err(), last)
}

func (t *transport) once(ctx context.Context, c call, result any) error {
	token, err := t.token.read(false)
	if err != nil {
		return err
	}
	if c.isOnce {
		// On a connection that the broker has closed nobody knows whether the request was read.
		t.client.CloseIdleConnections()
	}
	for {
		answer, isReused, err := t.exchange(ctx, c, token)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && c.interrupt != nil && c.interrupt.wasSet():
			return errInterrupted
		case err != nil && isReused && !c.isOnce && !errors.Is(err, context.DeadlineExceeded):
			// The broker closed it meanwhile, and probably the others, too.
			t.client.CloseIdleConnections()
			continue
		case err != nil:
			return &Error{Server: t.server, Cause: withoutURL(err), isUnsent: isDial(err)}
		}
		if answer.status == http.StatusUnauthorized {
			if now, err := t.token.read(true); err == nil && now != token {
				token = now
				continue
			}
		}
		if c.etag != nil {
			*c.etag = answer.header.Get("ETag")
		}
		return answer.decode(t.server, result)
	}
}

// withoutURL is the error without the method and the address that net/http writes before it.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// isDial reports whether there was no connection, so that nothing was sent.
func isDial(err error) bool {
	var of *net.OpError
	return errors.As(err, &of) && of.Op == "dial"
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

func (a answer) decode(server string, result any) error {
	var problem struct {
		Problem
		Results []json.RawMessage `json:"results"`
	}
	isSuccess := a.status < http.StatusMultipleChoices
	if !isSuccess {
		if err := json.Unmarshal(a.raw, &problem); err != nil {
			problem.Problem = Problem{Detail: string(a.raw[:min(len(a.raw), 200)])}
		}
	}
	// A problem with verdicts or results is an answer to read: only some of it failed.
	if isSuccess || len(problem.Results) > 0 {
		if len(a.raw) == 0 || result == nil {
			return nil
		}
		if err := json.Unmarshal(a.raw, result); err != nil {
			return &Error{Server: server, Cause: fmt.Errorf("the answer is not what a broker writes: %w", err)}
		}
		return nil
	}
	problem.Status = a.status
	seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
	return &Error{Problem: problem.Problem, Server: server, RetryAfter: time.Duration(seconds) * time.Second}
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
		return "", &Error{Cause: fmt.Errorf("token file: %w", err), isUnsent: true}
	}
	return t.text, nil
}
