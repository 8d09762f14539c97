package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// More than that many messages SQS does not take in a call.
	sqsBatch   = 10
	sqsCallers = 32
	sqsWait    = 20
)

// sqsPeer speaks to dwell as a program does that was written for Amazon SQS.
type sqsPeer struct {
	client *sqs.Client
	queue  *string
}

func openSqs() (*sqsPeer, error) {
	peer := &sqsPeer{}
	// Each caller keeps a connection to push and one to receive.
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * peer.callers()}
	peer.client = sqs.New(sqs.Options{
		BaseEndpoint: aws.String("http://127.0.0.1:" + os.Getenv("PORT")),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("any", "any", ""),
		HTTPClient:   &http.Client{Transport: transport},
	})
	created, err := peer.client.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: aws.String("bench")})
	if err == nil {
		peer.queue = created.QueueUrl
	}
	return peer, err
}

func (p *sqsPeer) batch() int   { return told("BATCH", sqsBatch) }
func (p *sqsPeer) callers() int { return told("CALLERS", sqsCallers) }

// delay is in whole seconds, rounded up so that nothing is early.
func delay(due int64) int32 { return int32(max(0, due-nowMs()+999) / 1_000) }

func (p *sqsPeer) push(_ int, messages []message) error {
	if len(messages) == 1 {
		_, err := p.client.SendMessage(context.Background(), &sqs.SendMessageInput{
			QueueUrl: p.queue, MessageBody: aws.String(string(messages[0].payload)), DelaySeconds: delay(messages[0].due),
		})
		return err
	}
	entries := make([]types.SendMessageBatchRequestEntry, len(messages))
	for at, message := range messages {
		entries[at] = types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(at)), MessageBody: aws.String(string(message.payload)), DelaySeconds: delay(message.due),
		}
	}
	sent, err := p.client.SendMessageBatch(context.Background(), &sqs.SendMessageBatchInput{QueueUrl: p.queue, Entries: entries})
	if err == nil && len(sent.Failed) > 0 {
		err = fmt.Errorf("a message was refused: %s", *sent.Failed[0].Message)
	}
	return err
}

func (p *sqsPeer) consume(tally *tally) error {
	for range p.callers() {
		go func() {
			for {
				if err := p.take(tally); err != nil {
					tally.fail(err)
					return
				}
			}
		}()
	}
	return nil
}

// take receives messages and deletes them.
func (p *sqsPeer) take(tally *tally) error {
	received, err := p.client.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{
		QueueUrl: p.queue, MaxNumberOfMessages: int32(p.batch()), WaitTimeSeconds: sqsWait,
	})
	if err != nil {
		return err
	}
	for _, message := range received.Messages {
		tally.received([]byte(*message.Body))
	}
	switch len(received.Messages) {
	case 0:
		return nil
	case 1:
		_, err = p.client.DeleteMessage(context.Background(), &sqs.DeleteMessageInput{
			QueueUrl: p.queue, ReceiptHandle: received.Messages[0].ReceiptHandle,
		})
	default:
		entries := make([]types.DeleteMessageBatchRequestEntry, len(received.Messages))
		for at, message := range received.Messages {
			entries[at] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(at)), ReceiptHandle: message.ReceiptHandle}
		}
		var deleted *sqs.DeleteMessageBatchOutput
		deleted, err = p.client.DeleteMessageBatch(context.Background(), &sqs.DeleteMessageBatchInput{QueueUrl: p.queue, Entries: entries})
		if err == nil && len(deleted.Failed) > 0 {
			err = fmt.Errorf("a delete was refused: %s", *deleted.Failed[0].Message)
		}
	}
	if err == nil {
		tally.settled(len(received.Messages))
	}
	return err
}
