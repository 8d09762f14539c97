// Throughput compares three ways to push with 32 goroutines: single pushes, the same calls of a Producer, and batches of 100.
//
//	DWELL_SERVER=http://127.0.0.1:7373 go run ./examples/throughput -messages 20000
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/dwell"
)

const callers, batch = 32, 100

func main() {
	messages := flag.Int("messages", 20000, "how many messages each way pushes")
	rounds := flag.Int("rounds", 3, "how many rounds; the best of each way counts")
	linger := flag.Duration("linger", time.Millisecond, "linger of the producer")
	atOnce := flag.Int("at-once", 4, "how many batches of the producer are under way at the same time")
	flag.Parse()
	c, err := dwell.New("")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	producer := dwell.NewProducer(c, dwell.Linger(*linger), dwell.AtOnce(*atOnce))
	message := dwell.NewMessage{Payload: strings.Repeat("x", 100), Delay: time.Hour}
	ways := []struct {
		name string
		step int
		push func() error
	}{
		{"single pushes", 1, func() error { _, err := c.Push(ctx, "throughput", message); return err }},
		{"Producer", 1, func() error { _, err := producer.Push(ctx, "throughput", message); return err }},
		{"batches of 100", batch, func() error {
			many := make([]dwell.NewMessage, batch)
			for n := range many {
				many[n] = message
			}
			_, err := c.PushMany(ctx, "throughput", many)
			return err
		}},
	}
	best := make([]float64, len(ways))
	for range *rounds {
		for n, way := range ways {
			rate, err := measure(*messages, way.step, way.push)
			if err != nil {
				log.Fatal(err)
			}
			best[n] = max(best[n], rate)
		}
	}
	if err := producer.Close(ctx); err != nil {
		log.Fatal(err)
	}
	for n, way := range ways {
		fmt.Printf("%-14s %8.0f messages a second, %5.1f times single pushes\n", way.name, best[n], best[n]/best[0])
	}
}

// measure is how many messages a second the callers push together.
func measure(messages, step int, push func() error) (float64, error) {
	var next atomic.Int64
	failed := make(chan error, callers)
	began := time.Now()
	var running sync.WaitGroup
	for range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for next.Add(int64(step)) <= int64(messages) {
				if err := push(); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	running.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(messages) / time.Since(began).Seconds(), nil
	}
}
