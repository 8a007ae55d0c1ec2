package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// durationPattern is the form of Go's durations.
const durationPattern = `^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*)$`

// ofMachine is a flag of which the default depends on the machine.
const ofMachine = "max-long-running-requests"

// Schema returns the JSON schema (2020-12) of a PorticoConfiguration, with a property for each flag.
func Schema(processes Processes) ([]byte, error) {
	properties := map[string]any{
		"apiVersion": map[string]any{"type": "string", "enum": []string{apiVersion}},
		"kind":       map[string]any{"type": "string", "enum": []string{kind}},
	}
	all := map[string]any{}
	for _, process := range processes.New() {
		own := map[string]any{}
		process.Flags().VisitAll(func(f *pflag.Flag) {
			if settable(f) {
				own[f.Name], all[f.Name] = flagSchema(f), flagSchema(f)
				delete(all[f.Name].(map[string]any), "default") // processes may differ
			}
		})
		properties[process.Name()] = sectionSchema("Flags of portico "+process.Name(), own)
	}
	properties[All] = sectionSchema("Flags of every process that has them", all)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                kind,
		"description":          "Configuration file of Portico's processes (--config)",
		"type":                 "object",
		"properties":           properties,
		"required":             []string{"apiVersion", "kind"},
		"additionalProperties": false,
	})
	return out.Bytes(), err
}

// sectionSchema returns the schema of a section, which may be empty.
func sectionSchema(description string, properties map[string]any) map[string]any {
	return map[string]any{"description": description, "type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

// flagSchema returns the schema of the value of a flag.
func flagSchema(f *pflag.Flag) map[string]any {
	_, usage := pflag.UnquoteUsage(f)
	one := map[string]any{"type": formOf(f).schema}
	switch f.Value.Type() {
	case "duration":
		one["pattern"] = durationPattern
	case "uint":
		one["minimum"] = 0
	}
	out := one
	// A list may be written as the flag is, in one text.
	if _, list := f.Value.(pflag.SliceValue); list {
		out = map[string]any{"type": []string{"string", "array"}, "items": one}
	}
	out["description"] = strings.ReplaceAll(usage, "\n", " ")
	if f.Name != ofMachine && !slices.Contains([]string{"", "[]"}, f.DefValue) {
		out["default"] = valueOf(f)
	}
	return out
}
