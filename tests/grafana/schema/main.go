// Reads dashboards with the strict types of Grafana's Foundation SDK, which Grafana generates from the schemas of its dashboards,
// panels and data sources. A field that they lack, a required field that the file lacks, and a value out of bounds are errors.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The data source for Prometheus reads these from an annotation; the schema of a dashboard does not have them.
var ofPrometheus = regexp.MustCompile(
	`^annotations\.list\[\d+\]\.AnnotationQuery: unexpected field '(step|textFormat|titleFormat|useValueForTime)'$`)

// mistakes returns what is wrong with a dashboard, and how many fields only the data source for Prometheus has.
func mistakes(text []byte) (wrong []error, ignored int) {
	var read dashboard.Dashboard
	for _, err := range []error{read.UnmarshalJSONStrict(text), read.Validate()} {
		var found cog.BuildErrors
		if err == nil {
			continue
		}
		if !errors.As(err, &found) {
			wrong = append(wrong, err)
		}
		for _, one := range found {
			if ofPrometheus.MatchString(one.Error()) {
				ignored++
			} else {
				wrong = append(wrong, one)
			}
		}
	}
	return wrong, ignored
}

func main() {
	plugins.RegisterDefaultPlugins()
	failed := len(os.Args) < 2
	for _, file := range os.Args[1:] {
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		wrong, ignored := mistakes(text)
		for _, err := range wrong {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
		}
		fmt.Printf("%s: %d mistakes; %d fields of annotations are those of Prometheus only\n", file, len(wrong), ignored)
		failed = failed || len(wrong) > 0
	}
	if failed {
		os.Exit(1)
	}
}
