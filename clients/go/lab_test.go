package dwell_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
)

// lab talks to clients/conformance/lab.py, which starts these tests.
func lab(t testing.TB, path string, asked map[string]any, answer any) {
	t.Helper()
	if err := labError(path, asked, answer); err != nil {
		t.Fatal(err)
	}
}

func labError(path string, asked map[string]any, answer any) error {
	address := os.Getenv("LAB")
	if address == "" {
		return fmt.Errorf("LAB is not set: run clients/run")
	}
	data, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	response, err := http.Post(address+path, "application/json", bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		return fmt.Errorf("%s: %s %v", path, raw, err)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(raw, answer)
}
