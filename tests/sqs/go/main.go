// The SDK of Go against a broker: attributes, typed errors, a delay, batches. The endpoint comes from the environment.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	settings, err := config.LoadDefaultConfig(ctx)
	must(err)
	client := sqs.NewFromConfig(settings)
	name := fmt.Sprintf("go-%d", rand.Int63())
	_, err = client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	var missing *types.QueueDoesNotExist
	check(errors.As(err, &missing), "a missing queue is a typed error", err)
	created, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name})
	must(err)
	url := created.QueueUrl

	count := types.MessageAttributeValue{DataType: aws.String("Number.int"), StringValue: aws.String("42")}
	began := time.Now()
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("soon"), DelaySeconds: 1,
		MessageAttributes: map[string]types.MessageAttributeValue{"Count": count}})
	must(err)
	received, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 10,
		MessageAttributeNames: []string{"All"}})
	must(err)
	check(len(received.Messages) == 1 && time.Since(began) >= time.Second, "the delay is kept", received.Messages)
	message := received.Messages[0]
	check(*message.MessageAttributes["Count"].DataType == "Number.int", "the type of an attribute is kept", message)
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: message.ReceiptHandle})
	must(err)

	var entries []types.SendMessageBatchRequestEntry
	for n := range 10 {
		entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)),
			MessageBody: aws.String(strconv.Itoa(n))})
	}
	sent, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
	must(err)
	check(len(sent.Successful) == 10 && len(sent.Failed) == 0, "all of a batch are sent", sent)
	for seen := 0; seen < 10; {
		received, err = client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 5, MaxNumberOfMessages: 10})
		must(err)
		check(len(received.Messages) > 0, "all of a batch arrive", seen)
		var gone []types.DeleteMessageBatchRequestEntry
		for n, message := range received.Messages {
			gone = append(gone, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)), ReceiptHandle: message.ReceiptHandle})
		}
		deleted, err := client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: gone})
		must(err)
		check(len(deleted.Failed) == 0, "all are deleted", deleted)
		seen += len(received.Messages)
	}
	fmt.Println("go: typed errors, attributes, a delay, batches ... ok")
}

func must(err error) {
	if err != nil {
		log.Fatal("go: ", err)
	}
}

func check(holds bool, what string, found any) {
	if !holds {
		log.Fatalf("go: not true: %s: %v", what, found)
	}
}
