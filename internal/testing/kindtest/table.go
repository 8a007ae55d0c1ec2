package kindtest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/rest"
)

// timeText matches times in JSON.
var timeText = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"`)

// Aged returns an object in JSON in which all times, also that of its creation, are 73 hours ago,
// so that cells with ages are always the same.
func Aged(o map[string]any) []byte {
	created := Put(Clone(o), []any{"metadata", "creationTimestamp"}, "2020-01-01T00:00:00Z")
	ago := time.Now().Add(-73 * time.Hour).UTC()
	return timeText.ReplaceAllFunc(Encoded(created), func(text []byte) []byte {
		if strings.Contains(string(text), ".") {
			return []byte(ago.Format(`"2006-01-02T15:04:05.000000Z"`))
		}
		return []byte(ago.Format(`"2006-01-02T15:04:05Z"`))
	})
}

// Table returns the columns of a kind and the cells of objects as they are recorded, one per line.
// Descriptions are left out.
func Table(columns []metav1.TableColumnDefinition, rows [][]any) string {
	var heads []string
	for _, c := range columns {
		head := c.Name + " " + c.Type
		if c.Format != "" {
			head += " " + c.Format
		}
		if c.Priority > 0 {
			head += " wide"
		}
		heads = append(heads, head)
	}
	var b strings.Builder
	b.WriteString("\t" + strings.Join(heads, ", ") + "\n")
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, cells := range rows {
		b.WriteString("\t")
		if err := enc.Encode(cells); err != nil {
			panic(err)
		}
	}
	return b.String()
}

// Cells returns the cells of an object.
func Cells(t testing.TB, k *rest.Kind, version string, body []byte) []any {
	t.Helper()
	obj, err := kindRules{k, version, k.Strategy}.decode(body)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := k.Cells(obj)
	if err != nil {
		t.Fatal(err)
	}
	return cells
}
