package bodylimit

import "encoding/json"

// countYAML counts the values of YAML and the elements of its lists. A value follows one
// of the indicators ": - , ? [ {", and every such byte counts, also within text: only a
// YAML scanner could tell. Clients send large texts as JSON, which is YAML too and is
// counted exactly.
func countYAML(data []byte) (values, items int) {
	for _, c := range data {
		switch c {
		case ',', '-', '[':
			items++
			values++
		case ':', '?', '{':
			values++
		}
	}
	if values > exactFrom && json.Valid(data) {
		return countJSON(data)
	}
	return values, items
}
