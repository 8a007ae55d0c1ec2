package rest

import (
	"encoding/json"
	"fmt"
	"strconv"

	"sigs.k8s.io/yaml/goyaml.v2"
)

// toYAML turns JSON into YAML, with the names of every object in order. It does
// not read JSON as YAML, which is the usual way: that takes several times as
// long, fails on control characters and long names, and makes a space of a
// U+0085. What would get too long is YAML of one line (flowYAML).
func toYAML(data []byte) ([]byte, error) {
	if tooLong(data, yamlLines) {
		return flowYAML(data)
	}
	v, err := decodeValue(data)
	if err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	if data, err = yaml.Marshal(withNumbers(v)); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return data, nil
}

// withNumbers has the numbers of a decoded value be numbers to encoders that do
// not know json.Number.
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
