// The generated client pushes, reserves, acks and cancels; exits with 1 when an answer is another than expected.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"dwell.test/contract/dwell"
)

func check(what string, err error, status, expected int, body []byte) {
	if err != nil || status != expected {
		fmt.Fprintf(os.Stderr, "go: %s: status %d, expected %d: %v %s\n", what, status, expected, err, body)
		os.Exit(1)
	}
}

func main() {
	ctx, topic := context.Background(), "contract-go"
	bearer := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("CONTRACT_TOKEN"))
		return nil
	}
	client, err := dwell.NewClientWithResponses(os.Getenv("CONTRACT_URL"), dwell.WithRequestEditorFn(bearer))
	check("client", err, 0, 0, nil)

	key := "customer-7"
	pushed, err := client.PushMessageWithBodyWithResponse(ctx, topic, &dwell.PushMessageParams{Key: &key}, "text/plain",
		strings.NewReader("close order 4711"))
	check("push", err, pushed.StatusCode(), 201, pushed.Body)

	max := 1
	wait := dwell.Duration("5s")
	reserved, err := client.ReserveMessagesWithResponse(ctx, topic, "default", dwell.Reserve{Max: &max, Wait: &wait})
	check("reserve", err, reserved.StatusCode(), 200, reserved.Body)
	delivery := reserved.JSON200.Deliveries[0]
	if *delivery.Payload != "close order 4711" || delivery.Id != pushed.JSON201.Id {
		check("reserve", fmt.Errorf("another message"), 200, 200, reserved.Body)
	}

	var receipt dwell.ReceiptOrObject
	check("receipt", receipt.FromReceipt(delivery.Receipt), 0, 0, nil)
	acked, err := client.AckMessagesWithResponse(ctx, topic, "default",
		dwell.Ack{Receipts: []dwell.ReceiptOrObject{receipt}})
	check("ack", err, acked.StatusCode(), 200, acked.Body)
	if acked.JSON200.Results[0].Status != "acked" {
		check("ack", fmt.Errorf("not acked"), 200, 200, acked.Body)
	}
	over, err := client.ExtendMessagesWithResponse(ctx, topic, "default",
		dwell.Extend{Receipts: []dwell.ReceiptOrObject{receipt}, VisibilityTimeout: &wait})
	check("extend what is acked", err, over.StatusCode(), 409, over.Body)
	if reason := over.ApplicationproblemJSON409.Reason; reason == nil || *reason != "already_settled" {
		check("extend what is acked", fmt.Errorf("another reason"), 409, 409, over.Body)
	}

	id := "later"
	delay := dwell.Duration("1h")
	batch := dwell.Batch{Messages: []dwell.BatchMessage{{Id: &id, Payload: &id, Delay: &delay}}}
	later, err := client.PushMessagesWithResponse(ctx, topic, nil, batch)
	check("push a batch", err, later.StatusCode(), 201, later.Body)
	cancelled, err := client.CancelMessageWithResponse(ctx, topic, id, nil)
	check("cancel", err, cancelled.StatusCode(), 200, cancelled.Body)
	again, err := client.CancelMessageWithResponse(ctx, "absent", id, nil)
	check("cancel what is absent", err, again.StatusCode(), 404, again.Body)
	fmt.Println("go: pushed, reserved, acked, cancelled")
}
