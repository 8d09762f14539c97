// Sends, receives and deletes messages in batches of 10 over 8 connections, at each endpoint in turn, and prints a row of
// messages a second for each.
//
//	bench MESSAGES ROUNDS NAME=URL …
//
// A URL that ends with /v1 is that of dwell's own API.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const connections = 8

func main() {
	messages, err := strconv.Atoi(os.Args[1])
	must(err)
	rounds, err := strconv.Atoi(os.Args[2])
	must(err)
	sent, taken := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for _, endpoint := range os.Args[3:] {
			name, url, _ := strings.Cut(endpoint, "=")
			measure := round
			if strings.HasSuffix(url, "/v1") {
				measure = native
			}
			one, other := measure(url, messages)
			sent[name], taken[name] = append(sent[name], one), append(taken[name], other)
		}
	}
	fmt.Println("| server | sent a second | received and deleted a second |")
	fmt.Println("|---|---|---|")
	for _, endpoint := range os.Args[3:] {
		name, _, _ := strings.Cut(endpoint, "=")
		fmt.Printf("| %s | %.0f | %.0f |\n", name, median(sent[name]), median(taken[name]))
	}
}

func round(endpoint string, messages int) (float64, float64) {
	ctx := context.Background()
	settings, err := config.LoadDefaultConfig(ctx)
	must(err)
	client := sqs.NewFromConfig(settings, func(options *sqs.Options) { options.BaseEndpoint = &endpoint })
	created, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(fmt.Sprintf("bench-%d", rand.Int63()))})
	must(err)
	url := created.QueueUrl
	body := aws.String(strings.Repeat("x", 100))

	var next atomic.Int64
	sending := together(func() {
		for next.Add(10) <= int64(messages) {
			var entries []types.SendMessageBatchRequestEntry
			for n := range 10 {
				entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)), MessageBody: body})
			}
			answer, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
			must(err)
			if len(answer.Failed) > 0 {
				log.Fatal(answer.Failed)
			}
		}
	})
	var gone atomic.Int64
	taking := together(func() {
		for gone.Load() < int64(messages) {
			answer, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
			must(err)
			var entries []types.DeleteMessageBatchRequestEntry
			for n, message := range answer.Messages {
				entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)), ReceiptHandle: message.ReceiptHandle})
			}
			if len(entries) == 0 {
				continue
			}
			_, err = client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: entries})
			must(err)
			gone.Add(int64(len(entries)))
		}
	})
	_, err = client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url})
	must(err)
	return float64(messages) / sending.Seconds(), float64(messages) / taking.Seconds()
}

func together(work func()) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for range connections {
		all.Go(work)
	}
	all.Wait()
	return time.Since(began)
}

func median(figures []float64) float64 {
	sort.Float64s(figures)
	return figures[len(figures)/2]
}

func must(err error) {
	if err != nil {
		log.Fatal("bench: ", err)
	}
}
