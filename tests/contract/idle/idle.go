// POSTs over one pooled connection of net/http, with silence before each. Every POST has to succeed on the same connection.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"time"
)

func main() {
	failed := 0
	for i, pause := range []time.Duration{0, 6, 30, 60} {
		time.Sleep(pause * time.Second)
		reused := false
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		url := os.Getenv("CONTRACT_URL") + "/v1/topics/idle/messages"
		request, err := http.NewRequest("POST", url, strings.NewReader("go"))
		if err != nil {
			panic(err)
		}
		// Without this, net/http sends the request again on a new connection, and hides what is looked for.
		request.GetBody = nil
		request.Header.Set("Authorization", "Bearer "+os.Getenv("CONTRACT_TOKEN"))
		response, err := http.DefaultClient.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
		if err != nil {
			fmt.Printf("go, net/http: after %d s: %v\n", pause, err)
			failed++
			continue
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if response.StatusCode != 201 || reused != (i > 0) {
			failed++
		}
		fmt.Printf("go, net/http: after %d s: %d, connection used again: %t\n", pause, response.StatusCode, reused)
	}
	if failed > 0 {
		os.Exit(1)
	}
}
