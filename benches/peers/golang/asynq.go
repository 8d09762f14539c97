package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynq pushes one task in a call, so many producers push at the same time, each with its own connection. A server takes
// tasks one by one in one loop, so several servers share the work.
const (
	asynqCallers     = 128
	asynqServers     = 4
	asynqConcurrency = 16
	// How often a server looks for tasks: for those that have become due, and for any while there is nothing to do.
	asynqCheck = 100 * time.Millisecond
)

type asynqPeer struct {
	address string
	client  *asynq.Client
}

func openAsynq() *asynqPeer {
	address := "127.0.0.1:" + os.Getenv("REDIS_PORT")
	client := asynq.NewClientFromRedisClient(redis.NewClient(&redis.Options{Addr: address, PoolSize: told("CALLERS", asynqCallers)}))
	return &asynqPeer{address, client}
}

func (p *asynqPeer) batch() int   { return 1 }
func (p *asynqPeer) callers() int { return told("CALLERS", asynqCallers) }

func (p *asynqPeer) push(_ int, messages []message) error {
	for _, message := range messages {
		// asynq drops the fraction of a second, so a task would be early: rounded up to a whole second.
		due := time.Unix((message.due+999)/1_000, 0)
		var options []asynq.Option
		if message.due > nowMs() {
			options = append(options, asynq.ProcessAt(due))
		}
		if _, err := p.client.Enqueue(asynq.NewTask("m", message.payload), options...); err != nil {
			return err
		}
	}
	return nil
}

func (p *asynqPeer) consume(tally *tally) error {
	handle := func(_ context.Context, task *asynq.Task) error {
		tally.received(task.Payload())
		return nil
	}
	servers, concurrency := asynqServers, asynqConcurrency
	if callers := told("CALLERS", 0); callers > 0 {
		servers, concurrency = 1, callers
	}
	for range servers {
		client := redis.NewClient(&redis.Options{Addr: p.address, PoolSize: concurrency + 8})
		client.AddHook(doneHook{tally})
		server := asynq.NewServerFromRedisClient(client, asynq.Config{
			Concurrency:              concurrency,
			TaskCheckInterval:        asynqCheck,
			DelayedTaskCheckInterval: asynqCheck,
			LogLevel:                 asynq.ErrorLevel,
		})
		if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
			return err
		}
	}
	return nil
}

// doneHook counts the acks: asynq removes a task after its handler has returned, by a script whose first key is the
// list of active tasks, and tells nobody.
type doneHook struct{ tally *tally }

func (h doneHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h doneHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h doneHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		// evalsha <sha> <number of keys> <first key>...
		arguments := command.Args()
		if len(arguments) < 4 || !strings.HasPrefix(command.Name(), "eval") {
			return err
		}
		if key, isText := arguments[3].(string); isText && strings.HasSuffix(key, ":active") {
			switch {
			case err == nil:
				h.tally.settled(1)
			case !redis.HasErrorPrefix(err, "NOSCRIPT"):
				h.tally.fail(fmt.Errorf("an ack failed: %w", err))
			}
		}
		return err
	}
}
