// Close unpaid orders: a customer has some time to pay, and then the shop closes the order.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"example.com/dwell"
)

// shop stands for the database.
type shop struct {
	mutex  sync.Mutex
	orders map[int]string
}

// change is UPDATE orders SET state = to WHERE id = order AND state = from.
func (s *shop) change(order int, from, to string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.orders[order] != from {
		return false
	}
	s.orders[order] = to
	fmt.Println(to, "order", order)
	return true
}

func names(order int) (id, key string) {
	return fmt.Sprintf("close-%d", order), fmt.Sprintf("order-%d", order)
}

func main() {
	payWithin, err := time.ParseDuration(os.Getenv("PAY_WITHIN"))
	if err != nil {
		payWithin = 30 * time.Minute
	}
	c, err := dwell.New("")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	s := &shop{orders: map[int]string{}}

	checkout := func(order int) error {
		s.change(order, "", "unpaid")
		// The id and the key are made of the order, so a repeated checkout pushes nothing new.
		id, key := names(order)
		_, err := c.Push(ctx, "orders", dwell.NewMessage{Payload: order, ID: id, Key: key, Delay: payWithin})
		return err
	}
	pay := func(order int) error {
		if !s.change(order, "unpaid", "paid") {
			return fmt.Errorf("order %d cannot be paid", order)
		}
		id, key := names(order)
		_, err := c.Cancel(ctx, "orders", dwell.Ref{ID: id, Key: key})
		if errors.Is(err, dwell.ErrConflict) || errors.Is(err, dwell.ErrNotFound) {
			return nil // the message is being delivered: the handler finds that the order is paid
		}
		return err
	}
	if err := errors.Join(checkout(4711), checkout(4712), pay(4711)); err != nil {
		log.Fatal(err)
	}

	worker := dwell.NewWorker(c, "orders", dwell.Concurrency(8))
	err = worker.Run(ctx, func(_ context.Context, d *dwell.Delivery) error {
		var order int
		if err := d.JSON(&order); err != nil {
			return dwell.Bury(err)
		}
		s.change(order, "unpaid", "closed")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
