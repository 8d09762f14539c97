// Measures peers that have a client in Go: peer asynq|go|nats|sqs push|drain|lateness|burst|idle.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: %s asynq|go|nats|sqs <measure>", arguments[0])
	}
	switch arguments[1] {
	case "asynq":
		return measure(openAsynq(), arguments[2])
	case "go":
		peer, err := openDwell()
		if err != nil {
			return err
		}
		return measure(peer, arguments[2])
	case "nats":
		peer, err := openNats()
		if err != nil {
			return err
		}
		return measure(peer, arguments[2])
	case "sqs":
		peer, err := openSqs()
		if err != nil {
			return err
		}
		return measure(peer, arguments[2])
	}
	return fmt.Errorf("no peer %q", arguments[1])
}
