package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"portico/cmd/e2e"
)

// expressions returns the PromQL of rules and dashboards by where it stands, and the names of
// recorded metrics.
func expressions(t *testing.T) (all map[string]string, recorded []string) {
	t.Helper()
	all = map[string]string{}
	dir := filepath.Join(e2e.Repository(), "deploy", "monitoring")
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Record, Expr string }
		}
	}
	decode(t, filepath.Join(dir, "rules.yaml"), &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all[fmt.Sprintf("rules.yaml: %s%s %d", r.Alert, r.Record, len(all))] = r.Expr
			if r.Record != "" {
				recorded = append(recorded, r.Record)
			}
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "dashboards", "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, name := range names {
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		decode(t, name, &d)
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all[fmt.Sprintf("%s: %s, %s", filepath.Base(name), p.Title, target.RefID)] = target.Expr
			}
		}
	}
	return all, recorded
}

// decode reads a file of YAML or JSON.
func decode(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// selector is a metric that an expression selects.
type selector struct {
	metric   string
	labels   []string          // that it selects by
	equal    map[string]string // values that it wants
	jobRegex string
}

var (
	// selected is a metric and its matchers. Rules and dashboards write the braces always.
	selected = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^{}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"`)
	// bare is a name that can be a metric without braces: it has an underscore or colon, and is no function.
	bare   = regexp.MustCompile(`\b[a-z]+[_:][a-z0-9_:]+\b(?:$|[^a-z0-9_:({])`)
	groups = regexp.MustCompile(`(?:by|on|without|ignoring) \(([^()]*)\)`)
)

// selectors returns the metrics that an expression selects, and the labels that it groups by.
func selectors(t *testing.T, where, expr string) (all []selector, grouped []string) {
	t.Helper()
	for _, m := range selected.FindAllStringSubmatch(expr, -1) {
		s := selector{metric: m[1], equal: map[string]string{}}
		for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
			switch {
			case label[1] == "job":
				s.jobRegex = label[3]
			case label[2] == "=":
				s.equal[label[1]] = label[3]
			}
			s.labels = append(s.labels, label[1])
		}
		all = append(all, s)
	}
	for _, m := range groups.FindAllStringSubmatch(expr, -1) {
		grouped = append(grouped, regexp.MustCompile(`\w+`).FindAllString(m[1], -1)...)
	}
	rest := groups.ReplaceAllString(selected.ReplaceAllString(expr, "0"), "")
	if name := bare.FindString(rest); name != "" {
		t.Errorf("%s: write %s with braces", where, name)
	}
	slices.Sort(grouped)
	return all, slices.Compact(grouped)
}
