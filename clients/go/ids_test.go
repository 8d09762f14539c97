package dwell

import (
	"regexp"
	"sync"
	"testing"
)

func TestIDsAreUniqueAndCountUpInRuns(t *testing.T) {
	const callers, each = 8, 5_000
	var wait sync.WaitGroup
	made := make([][]string, callers)
	for n := range made {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range each {
				made[n] = append(made[n], newULID())
			}
		}()
	}
	wait.Wait()
	isULID := regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)
	unique, runs := map[string]bool{}, map[string]bool{}
	for _, some := range made {
		for _, id := range some {
			if !isULID.MatchString(id) {
				t.Fatal(id)
			}
			unique[id], runs[id[:23]] = true, true
		}
	}
	if len(unique) != callers*each {
		t.Errorf("%d ids of %d are unique", len(unique), callers*each)
	}
	if len(runs) < callers*each/runIDs || len(runs) > callers*each/10 {
		t.Errorf("%d runs", len(runs))
	}
}

func TestARunOfIDsEndsWithItsTime(t *testing.T) {
	var run idRun
	first := run.next(1_764_000_000_000)
	if second := run.next(1_764_000_000_000 + runMillis - 1); second[:23] != first[:23] || second <= first {
		t.Error(first, second)
	}
	for _, now := range []int64{1_764_000_000_000 + runMillis, 1_763_999_999_000} {
		if other := run.next(now); other[:23] == first[:23] {
			t.Error(first, other)
		}
	}
}
