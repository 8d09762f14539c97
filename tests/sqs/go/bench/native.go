package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"net/http"
	"strings"
	"sync/atomic"
)

type message struct {
	Payload string `json:"payload"`
}

type delivery struct {
	Receipt string `json:"receipt"`
}

// native does the same as round, by dwell's own API.
func native(endpoint string, messages int) (float64, float64) {
	topic := fmt.Sprintf("%s/topics/bench-%d", endpoint, rand.Int63())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	call := func(method, path string, body, answer any) {
		text, err := json.Marshal(body)
		must(err)
		request, err := http.NewRequest(method, topic+path, bytes.NewReader(text))
		must(err)
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		must(err)
		defer response.Body.Close()
		if response.StatusCode >= 300 {
			log.Fatal("bench: ", response.Status)
		}
		must(json.NewDecoder(response.Body).Decode(answer))
	}
	var ignored json.RawMessage
	call("PUT", "", map[string]int{"partitions": 1}, &ignored)

	var next atomic.Int64
	sending := together(func() {
		batch := make([]message, 10)
		for n := range batch {
			batch[n] = message{strings.Repeat("x", 100)}
		}
		for next.Add(10) <= int64(messages) {
			var results json.RawMessage
			call("POST", "/messages/batch", map[string]any{"messages": batch}, &results)
		}
	})
	var gone atomic.Int64
	taking := together(func() {
		for gone.Load() < int64(messages) {
			var taken struct{ Deliveries []delivery }
			call("POST", "/groups/default/reserve", map[string]any{"max": 10, "wait": "1s"}, &taken)
			receipts := make([]string, len(taken.Deliveries))
			for n, one := range taken.Deliveries {
				receipts[n] = one.Receipt
			}
			if len(receipts) == 0 {
				continue
			}
			var verdicts json.RawMessage
			call("POST", "/groups/default/ack", map[string]any{"receipts": receipts}, &verdicts)
			gone.Add(int64(len(receipts)))
		}
	})
	return float64(messages) / sending.Seconds(), float64(messages) / taking.Seconds()
}
