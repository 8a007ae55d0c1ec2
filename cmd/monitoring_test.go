package cmd

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write deploy/monitoring/dashboards instead of comparing it")

// monitoringDir has the rules and dashboards.
const monitoringDir = root + "/deploy/monitoring"

// dashboard is a row of deploy/monitoring/dashboards.yaml.
type dashboard struct {
	File, Title string
	Rows        []struct {
		Title  string
		Type   string // of the panels; timeseries by default
		Panels []struct {
			Title, Unit, Help string
			Queries           map[string]string // by legend
		}
	}
}

// object is a JSON object.
type object = map[string]any

// grid is the layout of panels: so many in a line, of so many units of the width of 24.
const (
	panelsInLine = 3
	panelWidth   = 24 / panelsInLine
	panelHeight  = 8
)

// prometheus is the data source that the user selects in a dashboard.
var prometheus = object{"type": "prometheus", "uid": "${datasource}"}

// grafana returns the dashboard as Grafana reads it.
func (d *dashboard) grafana() object {
	var panels []object
	y := 0
	for _, row := range d.Rows {
		panels = append(panels, object{"id": len(panels) + 1, "type": "row", "title": row.Title, "gridPos": object{"h": 1, "w": 24, "x": 0, "y": y}})
		y++
		for i, p := range row.Panels {
			var targets []object
			for _, legend := range slices.Sorted(maps.Keys(p.Queries)) {
				expr := strings.ReplaceAll(p.Queries[legend], "$on", `job=~"$job",instance=~"$instance"`)
				targets = append(targets, object{"refId": string(rune('A' + len(targets))), "datasource": prometheus, "expr": expr, "legendFormat": legend})
			}
			kind := row.Type
			if kind == "" {
				kind = "timeseries"
			}
			panels = append(panels, object{
				"id": len(panels) + 1, "type": kind, "title": p.Title, "description": p.Help, "datasource": prometheus, "targets": targets,
				"gridPos":     object{"h": panelHeight, "w": panelWidth, "x": i % panelsInLine * panelWidth, "y": y + i/panelsInLine*panelHeight},
				"fieldConfig": object{"defaults": object{"unit": p.Unit}, "overrides": []object{}},
			})
		}
		y += (len(row.Panels) + panelsInLine - 1) / panelsInLine * panelHeight
	}
	return object{
		"uid": "portico-" + d.File, "title": d.Title, "tags": []string{"portico"}, "schemaVersion": 39, "version": 1, "editable": true,
		"refresh": "30s", "time": object{"from": "now-3h", "to": "now"}, "panels": panels,
		"links": []object{{"type": "dashboards", "title": "Portico", "tags": []string{"portico"}, "asDropdown": true, "keepTime": true}},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			labelVariable("job", `label_values(up{job=~"portico-.+"}, job)`),
			labelVariable("instance", `label_values(up{job=~"$job"}, instance)`),
		}},
	}
}

// labelVariable returns a variable of a dashboard: the values of a label, of which the user selects some.
func labelVariable(name, query string) object {
	return object{
		"name": name, "label": strings.ToUpper(name[:1]) + name[1:], "type": "query", "datasource": prometheus, "query": query, "refresh": 2, "sort": 1,
		"multi": true, "includeAll": true, "current": object{"text": "All", "value": "$__all"},
	}
}

// The dashboards of Grafana are what deploy/monitoring/dashboards.yaml says; -update writes them.
func TestDashboards(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoringDir, "dashboards.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*dashboard
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for _, d := range all {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		if err := enc.Encode(d.grafana()); err != nil {
			t.Fatal(err)
		}
		want[d.File+".json"] = out.Bytes()
		if *update {
			if err := os.WriteFile(filepath.Join(monitoringDir, "dashboards", d.File+".json"), out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(monitoringDir, "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got, err := os.ReadFile(filepath.Join(monitoringDir, "dashboards", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want[e.Name()]) {
			t.Errorf("%s is not what dashboards.yaml says: go test ./cmd -run TestDashboards -update", e.Name())
		}
		delete(want, e.Name())
	}
	for name := range want {
		t.Errorf("there is no %s: go test ./cmd -run TestDashboards -update", name)
	}
}

// Every alert has a severity, says what it is about, and links to its section of docs/runbook.md; no
// section is about something else.
func TestAlertsHaveRunbooks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(monitoringDir, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	runbook := documents(t)["docs/runbook.md"]
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(runbook, -1) {
		sections[m[1]] = false
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			if _, ok := sections[r.Alert]; !ok {
				t.Errorf("docs/runbook.md has no section %s", r.Alert)
			}
			sections[r.Alert] = true
			if !strings.Contains(runbook, "\n| "+r.Labels["severity"]+" | ") {
				t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
			}
			if got, want := r.Annotations["runbook_url"], fmt.Sprintf("docs/runbook.md#%s", strings.ToLower(r.Alert)); got != want {
				t.Errorf("%s links to %q, want %q", r.Alert, got, want)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s does not say what it is about", r.Alert)
			}
		}
	}
	for name, used := range sections {
		if !used {
			t.Errorf("docs/runbook.md has a section %s, and there is no such alert", name)
		}
	}
}
