package dwell_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/dwell"
	"example.com/dwell/dwelltest"
)

// The snippets of README.md, each between its name and "end". TestReadmeShowsWhatIsTested compares them.

type Order struct {
	Order int `json:"order"`
}

var errBusy = errors.New("busy")

func readmeProducer(ctx context.Context, client *dwell.Client, order Order) error {
	// snippet: producer
	ref := dwell.Ref{ID: "close-4713", Key: "order-4713"}
	message := dwell.NewMessage{ID: ref.ID, Key: ref.Key, Payload: order, Delay: 30 * time.Minute}
	if _, err := client.Push(ctx, "orders", message); err != nil {
		return err
	}
	if _, err := client.Reschedule(ctx, "orders", ref, dwell.Reschedule{Delay: 90 * time.Minute}); err != nil {
		return err
	}
	_, err := client.Cancel(ctx, "orders", ref)
	if errors.Is(err, dwell.ErrConflict) || errors.Is(err, dwell.ErrNotFound) {
		return nil // a consumer has the message, or had it
	}
	return err
	// end
}

func readmeGather(ctx context.Context, client *dwell.Client, serve func() error) (err error) {
	// snippet: gather
	producer := dwell.NewProducer(client)
	defer func() { err = errors.Join(err, producer.Close(context.WithoutCancel(ctx))) }()
	http.HandleFunc("POST /orders/{order}", func(w http.ResponseWriter, r *http.Request) {
		message := dwell.NewMessage{ID: "close-" + r.PathValue("order"), Payload: r.PathValue("order"), Delay: 30 * time.Minute}
		if _, err := producer.Push(r.Context(), "orders", message); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	// end
	return serve()
}

func readmeWorker(ctx context.Context, client *dwell.Client, closeOrder func(context.Context, Order) error) error {
	// snippet: worker
	worker := dwell.NewWorker(client, "orders", dwell.Concurrency(8), dwell.MaxRuntime(10*time.Minute))
	return worker.Run(ctx, func(ctx context.Context, d *dwell.Delivery) error {
		var order Order
		if err := d.JSON(&order); err != nil {
			return dwell.Bury(err)
		}
		if err := closeOrder(ctx, order); errors.Is(err, errBusy) {
			return dwell.Retry(time.Minute, err)
		} else if err != nil {
			return err
		}
		return nil
	})
	// end
}

func readmeAdministration(ctx context.Context, client *dwell.Client) error {
	// snippet: administration
	settings := dwell.TopicSettings{MaxAttempts: dwell.Ptr(5), Backoff: dwell.Ladder(time.Minute, time.Hour)}
	if _, err := client.CreateTopic(ctx, "orders", settings); err != nil {
		return err
	}
	if _, err := client.Pause(ctx, "orders", "default", dwell.PauseFor(10*time.Minute)); err != nil {
		return err
	}
	old := dwell.DeadLetterQuery{Order: dwell.OrderOldest, OlderThan: 24 * time.Hour}
	for letter, err := range client.DeadLetters(ctx, "orders", "default", old) {
		if err != nil {
			return err
		}
		fmt.Println(letter.ID, letter.DiedAt, letter.LastError)
	}
	_, err := client.Redrive(ctx, "orders", "default", dwell.Selection{Reason: dwell.DeathMaxAttempts})
	return err
	// end
}

// snippet: test
func TestAReminderOf30Days(t *testing.T) {
	broker := dwelltest.Start(t) // dwell serve --test-clock, found by DWELL_BIN or in PATH
	message := dwell.NewMessage{Payload: "renew", Delay: 720 * time.Hour}
	if _, err := broker.Client.Push(context.Background(), "reminders", message); err != nil {
		t.Fatal(err)
	}
	moved := broker.Advance(720 * time.Hour)
	if len(moved.Due) != 1 {
		t.Errorf("%+v", moved)
	}
}

// end

func TestReadmeSnippets(t *testing.T) {
	ctx := context.Background()
	broker := dwelltest.Start(t)
	client := broker.Client
	if err := readmeProducer(ctx, client, Order{4713}); err != nil {
		t.Fatal(err)
	}
	err := readmeGather(ctx, client, func() error {
		answer := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/orders/4714", nil))
		if answer.Code != http.StatusOK {
			return errors.New(answer.Body.String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := client.Get(ctx, "orders", dwell.Ref{ID: "close-4714"}); err != nil || string(m.Payload) != "4714" {
		t.Fatal(m, err)
	}
	if _, err := client.Push(ctx, "orders", dwell.NewMessage{Payload: Order{4715}}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	err = readmeWorker(running, client, func(_ context.Context, order Order) error {
		if order.Order != 4715 {
			t.Error(order)
		}
		stop()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := readmeAdministration(ctx, client); err != nil {
		t.Fatal(err)
	}
}

func TestReadmeShowsWhatIsTested(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]string{}
	for _, found := range regexp.MustCompile(`(?s)(\t*)// snippet: (\w+)\n(.*?)\n+\t*// end\n`).FindAllStringSubmatch(string(source), -1) {
		tested[found[2]] = strings.TrimPrefix(strings.ReplaceAll("\n"+found[3], "\n"+found[1], "\n"), "\n")
	}
	shown := regexp.MustCompile("(?s)<!-- snippet: (\\w+) -->\n```go\n(.*?)\n```").FindAllStringSubmatch(string(readme), -1)
	for _, found := range shown {
		if tested[found[1]] != found[2] {
			t.Errorf("%s: README.md has\n%s\nand the test has\n%s", found[1], found[2], tested[found[1]])
		}
	}
	// The first block is a program, which clients/run plays.
	if blocks := strings.Count(string(readme), "```go\n"); len(shown) != len(tested) || blocks != len(shown)+1 {
		t.Errorf("%d blocks, %d named, %d tested", blocks, len(shown), len(tested))
	}
}

// TestInstall does what README.md says, beside a clone and without a network, with the first program of README.md.
func TestInstall(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(string(readme))[1]
	commands := regexp.MustCompile("(?s)```sh\n(.*?)\n```").FindStringSubmatch(string(readme))[1]
	directory := t.TempDir()
	shop, clone := filepath.Join(directory, "shop"), filepath.Join(directory, "dwell", "clients", "go")
	err = errors.Join(os.MkdirAll(clone, 0o700), os.MkdirAll(shop, 0o700), os.CopyFS(clone, os.DirFS(".")),
		os.WriteFile(filepath.Join(shop, "main.go"), []byte(program), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range append(strings.Split(commands, "\n"), "go vet ./...", "go build -o shop .") {
		words := strings.Fields(command)
		step := exec.Command(words[0], words[1:]...)
		step.Dir = shop
		step.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
		if output, err := step.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, output)
		}
	}
}
