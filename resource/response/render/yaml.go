package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml/goyaml.v2"
)

// YAML converts JSON to YAML with sorted keys. It does not read JSON as YAML, as libraries
// do: that takes several times as long, fails on control characters and long keys, and
// turns U+0085 into a space. A result that would be too long is YAML of one line
// (FlowYAML).
func YAML(data []byte) ([]byte, error) {
	if TooLong(data, YAMLLines) {
		return FlowYAML(data)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err := d.Decode(&v)
	if err == nil {
		data, err = yaml.Marshal(withNumbers(v))
	}
	if err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return data, nil
}

// withNumbers replaces the json.Numbers of a decoded value by numbers of Go.
func withNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = withNumbers(member)
		}
	case []any:
		for i, element := range v {
			v[i] = withNumbers(element)
		}
	case json.Number:
		text := v.String()
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
		return text
	}
	return v
}
