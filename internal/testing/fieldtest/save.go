package fieldtest

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Save writes the outcomes of rows into the file that they were loaded from.
func Save(t testing.TB, file string, rows []Row) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	for i, row := range document.Content[0].Content {
		steps := member(row, "steps")
		for j, step := range steps.Content {
			set(t, step, &rows[i].Steps[j].Outcome)
		}
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(&document); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// member returns the value of a key; nil: there is none.
func member(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// set sets the outcome in the node of a step.
func set(t testing.TB, step *yaml.Node, o *Outcome) {
	t.Helper()
	setMember(t, step, "code", o.Code, o.Code == 0)
	setMember(t, step, "reasons", o.Reasons, len(o.Reasons) == 0)
	setMember(t, step, "message", o.Message, o.Message == "")
	setMember(t, step, "warnings", o.Warnings, len(o.Warnings) == 0)
	setMember(t, step, "stored", o.Stored, o.Stored == nil)
	if show := member(step, "show"); show != nil {
		for path, value := range o.Show {
			setMember(t, show, path, value, false)
		}
	}
}

// setMember sets a key of a mapping, or removes it. A value that does not change keeps its form.
func setMember(t testing.TB, mapping *yaml.Node, key string, value any, remove bool) {
	t.Helper()
	at := -1
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			at = i
		}
	}
	if remove {
		if at >= 0 {
			mapping.Content = append(mapping.Content[:at], mapping.Content[at+2:]...)
		}
		return
	}
	var plain any
	if err := json.Unmarshal([]byte(asText(value)), &plain); err != nil {
		t.Fatal(err)
	}
	node := &yaml.Node{}
	if plain == nil {
		node.Kind, node.Tag, node.Value = yaml.ScalarNode, "!!null", "null"
	} else if err := node.Encode(whole(plain)); err != nil {
		t.Fatal(err)
	}
	flow(node)
	if at < 0 {
		mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, node)
		return
	}
	var before any
	if err := mapping.Content[at+1].Decode(&before); err != nil || !reflect.DeepEqual(whole(before), whole(plain)) {
		mapping.Content[at+1] = node
	}
}

// whole returns a decoded value with whole numbers as integers.
func whole(v any) any {
	switch v := v.(type) {
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case int:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = whole(v[name])
		}
	}
	return v
}

// flow writes a node on one line.
func flow(node *yaml.Node) {
	node.Style |= yaml.FlowStyle
	if node.Kind == yaml.ScalarNode {
		node.Style = yaml.DoubleQuotedStyle
		if node.Tag != "!!str" {
			node.Style = 0
		}
	}
	for _, inner := range node.Content {
		flow(inner)
	}
}
