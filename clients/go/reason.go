package dwell

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"
)

// The longest reason that is sent: characters of the message, and bytes of the others. The broker cuts what is longer.
const (
	longestMessage = 1000
	longestClass   = 256
	longestStack   = 4 << 10
)

// retryError and buryError are what Retry and Bury return.
type (
	retryError struct {
		after     time.Duration
		cause     error
		pausesKey bool
	}
	buryError struct{ cause error }
)

func (e *retryError) Error() string { return told(e.cause, "retry") }
func (e *retryError) Unwrap() error { return e.cause }
func (e *buryError) Error() string  { return told(e.cause, "bury") }
func (e *buryError) Unwrap() error  { return e.cause }

func told(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}

// Retry is the error of a handler that wants the message again after this time, and not after the backoff of its topic. The cause,
// which may be nil, is kept as the reason.
func Retry(after time.Duration, cause error, opts ...RetryOption) error {
	retry := &retryError{after: max(after, 0), cause: cause}
	for _, option := range opts {
		option(retry)
	}
	return retry
}

// RetryOption is an option of Retry.
type RetryOption func(*retryError)

// PauseKey makes all messages of the key wait as long as this one, and no attempt of theirs is counted, as for a 429 with Retry-After of a
// customer's endpoint. Only in a fair group: in another one the broker refuses it, and delivers the message again after its visibility
// timeout.
func PauseKey() RetryOption { return func(r *retryError) { r.pausesKey = true } }

// Bury is the error of a handler whose message can never succeed: the message becomes a dead letter. The cause, which may be nil, is
// kept as the reason.
func Bury(cause error) error { return &buryError{cause} }

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprint(e.value) }

// Unwrap returns the error that was the value of the panic.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// newPanic is called by the deferred function that recovered.
func newPanic(value any) error { return &panicError{value, panicStack(string(debug.Stack()))} }

// panicStack is the stack from the function that panicked on. Each call is two lines, after a line with the goroutine; the first
// calls are those of the recovery, up to panic itself.
func panicStack(stack string) string {
	if _, after, ok := strings.Cut(stack, "\npanic("); ok {
		if _, calls, ok := strings.Cut(after, "\n\t"); ok {
			if _, rest, ok := strings.Cut(calls, "\n"); ok {
				return rest
			}
		}
	}
	return stack
}

// reasonOf is the reason of a nack: class, message and stack of the error, or its text alone.
func reasonOf(err error, hasDetails bool) any {
	message := cutCharacters(err.Error(), longestMessage)
	if !hasDetails {
		return message
	}
	failure := Failure{Class: cut(classOf(err), longestClass), Message: message}
	var panicked *panicError
	if errors.As(err, &panicked) {
		failure.Stack = cut(panicked.stack, longestStack)
	}
	return failure
}

// causeOf is the reason of a Retry or a Bury: nothing without a cause, and the text alone of an error that is only a text.
func causeOf(err, cause error, hasDetails bool) any {
	switch err.(type) {
	case *retryError, *buryError:
		if cause == nil {
			return nil
		}
	}
	return reasonOf(err, hasDetails && !isText(classOf(err)))
}

// isText reports whether a type of errors says no more than its text.
func isText(class string) bool {
	switch class {
	case "*errors.errorString", "*errors.joinError", "*fmt.wrapError", "*fmt.wrapErrors", "<nil>":
		return true
	}
	return false
}

// classOf is the type of the innermost error that says more than a text: wrapping with fmt.Errorf does not hide it.
func classOf(err error) string {
	class := fmt.Sprintf("%T", err)
	for ; err != nil; err = errors.Unwrap(err) {
		switch err := err.(type) {
		case *panicError:
			if _, ok := err.value.(error); !ok {
				return "panic"
			}
			continue
		case *retryError, *buryError:
			class = fmt.Sprintf("%T", errors.Unwrap(err))
			continue
		}
		if class = fmt.Sprintf("%T", err); !isText(class) {
			return class
		}
	}
	return class
}

// cut is at most this many bytes of a text, whole characters.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// cutCharacters is at most this many characters of a text.
func cutCharacters(text string, most int) string {
	for at := range text {
		if most--; most < 0 {
			return text[:at]
		}
	}
	return text
}
