package dwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrorType is the type of an Error. It is an error, so errors.Is compares with it:
//
//	if errors.Is(err, dwell.ErrNotFound) { … }
type ErrorType string

// Types of errors. The reference of errors says what to do about each.
const (
	// ErrUnavailable: there was no answer until the end of RetryFor, or none that is final. A push may be stored: push again
	// with the same id and key.
	ErrUnavailable          ErrorType = "unavailable"
	ErrMalformed            ErrorType = "malformed"
	ErrUnauthorized         ErrorType = "unauthorized"
	ErrForbidden            ErrorType = "forbidden"
	ErrScopeMissing         ErrorType = "scope-missing"
	ErrNotFound             ErrorType = "not-found"
	ErrUnknownReceipt       ErrorType = "unknown-receipt"
	ErrMethodNotAllowed     ErrorType = "method-not-allowed"
	ErrTimeout              ErrorType = "timeout"
	ErrStale                ErrorType = "stale"
	ErrConflict             ErrorType = "conflict"
	ErrAmbiguous            ErrorType = "ambiguous"
	ErrNotSettled           ErrorType = "not-settled"
	ErrPreconditionFailed   ErrorType = "precondition-failed"
	ErrTooLarge             ErrorType = "too-large"
	ErrUnsupportedMediaType ErrorType = "unsupported-media-type"
	ErrInvalid              ErrorType = "invalid"
	ErrInvalidReceipt       ErrorType = "invalid-receipt"
	ErrCorrupt              ErrorType = "corrupt"
	ErrBug                  ErrorType = "bug"
	ErrFull                 ErrorType = "full"
	ErrOutcomeUnknown       ErrorType = "outcome-unknown"
)

// Error is the type as text.
func (t ErrorType) Error() string { return "dwell: " + string(t) }

// UnmarshalJSON reads the type without its prefix.
func (t *ErrorType) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	*t = ErrorType(strings.TrimPrefix(text, "urn:dwell:error:"))
	return err
}

// mayPass reports whether the same message may be accepted later.
func (t ErrorType) mayPass() bool {
	return t == ErrFull || t == ErrUnavailable || t == ErrOutcomeUnknown
}

// ErrClosed is the error of a push to a Producer that is closed.
var ErrClosed = errors.New("dwell: the producer is closed")

// ErrLost is the cause of the end of a handler's context when another consumer may have the message.
var ErrLost = errors.New("dwell: the delivery is lost")

// ErrStopped is the cause of the end of a handler's context when the worker stops and the time to drain is over.
var ErrStopped = errors.New("dwell: the worker stopped")

// ArgumentError is an argument that no broker accepts. Nothing was sent.
type ArgumentError struct {
	// Argument is the name of the argument or field, such as "Delay".
	Argument string
	Problem  string
}

func (e *ArgumentError) Error() string { return "dwell: " + e.Argument + " " + e.Problem }

func wrong(argument, problem string) error { return &ArgumentError{argument, problem} }

// named refuses empty names. Each pair is the name of an argument and its value.
func named(pairs ...string) error {
	for n := 0; n < len(pairs); n += 2 {
		if pairs[n+1] == "" {
			return wrong(pairs[n], "is empty")
		}
	}
	return nil
}

// notNegative refuses a duration below 0.
func notNegative(argument string, d time.Duration) error {
	if d < 0 {
		return wrong(argument, fmt.Sprintf("is negative: %v", d))
	}
	return nil
}

// FieldError is a field that the broker refused. Exactly one of Pointer, Parameter and Header is there; an empty Pointer is the
// whole body.
type FieldError struct {
	Code      FaultCode `json:"code"`
	Detail    string    `json:"detail"`
	Pointer   string    `json:"pointer,omitempty"`
	Parameter string    `json:"parameter,omitempty"`
	Header    string    `json:"header,omitempty"`
	Line      int       `json:"line,omitempty"`
}

// Problem is an answer of the broker that refuses a request, or a message of a batch.
type Problem struct {
	Type      ErrorType `json:"type"`
	Title     string    `json:"title"`
	Status    int       `json:"status"`
	Detail    string    `json:"detail"`
	RequestID string    `json:"request_id,omitempty"`
	// ID is the id to push again with, when the outcome of a push is unknown.
	ID string `json:"id,omitempty"`
	// Errors are the fields that are wrong, at most 100; MoreErrors is how many are not listed.
	Errors     []FieldError `json:"errors,omitempty"`
	MoreErrors int          `json:"more_errors,omitempty"`
	// Groups has the state of a message in each group, when a cancel or a reschedule changed nothing.
	Groups []GroupFate `json:"groups,omitempty"`
	// Missing names what does not exist.
	Missing Missing `json:"missing,omitempty"`
}

// Missing names what does not exist: a topic, or a group or cron job of one that does.
type Missing struct {
	Topic string `json:"topic,omitempty"`
	Group string `json:"group,omitempty"`
	Cron  string `json:"cron,omitempty"`
}

// Error is a request that the broker refused, or did not answer. errors.Is compares it with an ErrorType.
type Error struct {
	// Problem is the answer of the broker. Without an answer its Status is 0.
	Problem
	// Server is the address of the broker.
	Server string
	// RetryAfter is how long the broker asks to wait.
	RetryAfter time.Duration
	// Repeated says that an earlier try had no answer and may have succeeded. Then ErrConflict and ErrPreconditionFailed may
	// be its doing.
	Repeated bool
	// Cause is why there was no answer, such as a *net.OpError.
	Cause       error
	unavailable bool
	// isUnsent: the broker got nothing of the request.
	isUnsent bool
}

func (e *Error) Error() string {
	text := e.Detail
	if e.Status != 0 {
		text = fmt.Sprintf("%d %s: %s", e.Status, string(e.Type), e.Detail)
	} else if e.Cause != nil && e.Detail == "" {
		text = e.Cause.Error()
	}
	if e.unavailable {
		text = "unavailable: " + text
	}
	if e.Server != "" {
		text = e.Server + ": " + text
	}
	return "dwell: " + text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is compares the type with an ErrorType. ErrUnavailable matches every error that stayed until the end of RetryFor.
func (e *Error) Is(target error) bool {
	kind, ok := target.(ErrorType)
	return ok && (e.Type == kind || kind == ErrUnavailable && e.unavailable)
}

// mayPass reports whether the same request may succeed later.
func (e *Error) mayPass() bool {
	switch e.Status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// isOpen reports whether the request may have been carried out.
func (e *Error) isOpen() bool {
	return e.Status == 0 && !e.isUnsent || e.Status == http.StatusGatewayTimeout
}

// ofMessages splits the error of a batch: for each message that it names, an error about that message alone.
func (e *Error) ofMessages(count int) map[int]*Error {
	found := map[int]*Error{}
	for _, field := range e.Errors {
		rest, ok := strings.CutPrefix(field.Pointer, "/messages/")
		number, pointer, _ := strings.Cut(rest, "/")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < 0 || n >= count {
			continue
		}
		field.Pointer = ""
		if pointer != "" {
			field.Pointer = "/" + pointer
		}
		own := found[n]
		if own == nil {
			own = &Error{Problem: e.Problem, Server: e.Server}
			own.Errors, own.MoreErrors, own.Detail = nil, 0, ""
			found[n] = own
		}
		own.Errors = append(own.Errors, field)
		if own.Detail != "" {
			own.Detail += "; "
		}
		own.Detail += fmt.Sprintf("`%s`: %s", strings.ReplaceAll(pointer, "/", "."), field.Detail)
	}
	return found
}

// ManyError says that some of many messages failed. Each has its own result.
type ManyError struct {
	// Failed is how many, and Total of how many.
	Failed, Total int
	// First is the first error.
	First error
}

func (e *ManyError) Error() string {
	return fmt.Sprintf("dwell: %d of %d messages failed, the first with: %s", e.Failed, e.Total, strings.TrimPrefix(e.First.Error(), "dwell: "))
}

// Unwrap returns the first error.
func (e *ManyError) Unwrap() error { return e.First }
