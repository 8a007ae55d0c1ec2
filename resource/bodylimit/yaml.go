package bodylimit

import "encoding/json"

// countYAML counts the values of YAML and the elements of its lists. Each value
// stands behind one of the indicators ": - , ? [ {", and every byte that may be an
// indicator counts, in text or not: telling them apart takes a scanner of YAML.
// Clients send large texts as JSON, which is YAML as well and is counted exactly.
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
