package custom

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"portico/resource/rest"
)

// path is a simple JSON path of a definition: a column or a selectable field. Safe for
// concurrent use.
type path struct {
	name   string
	parsed *jsonpath.JSONPath
}

func newPath(name, text string) (path, error) {
	parsed := jsonpath.New(name).AllowMissingKeys(true)
	err := parsed.Parse("{" + text + "}")
	return path{name, parsed}, err
}

// find returns the value at the path; ok reports whether there is one.
func (p path) find(object map[string]any) (value any, ok bool) {
	results, err := p.parsed.FindResults(object)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil, false
	}
	return results[0][0].Interface(), true
}

// setColumns sets the columns of the row: the name, then the definition's own, or the age
// if it has none.
func (c *custom) setColumns() {
	own := c.version.AdditionalPrinterColumns
	if len(own) == 0 {
		own = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
			Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		}}
	}
	columns := []metav1.TableColumnDefinition{{
		Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}}
	paths := make([]path, 0, len(own))
	for _, col := range own {
		p, err := newPath(col.Name, col.JSONPath)
		if err != nil {
			break // as upstream: the columns before a malformed one are shown
		}
		text := col.Description
		if text == "" {
			text = "Custom resource definition column (in JSONPath format): " + col.JSONPath
		}
		columns = append(columns, metav1.TableColumnDefinition{
			Name: col.Name, Type: col.Type, Format: col.Format, Description: text, Priority: col.Priority,
		})
		paths = append(paths, p)
	}
	c.kind.Columns = columns
	c.kind.Cells = func(obj runtime.Object) ([]any, error) { return cells(obj, columns, paths) }
}

func cells(obj runtime.Object, columns []metav1.TableColumnDefinition, paths []path) ([]any, error) {
	o, ok := obj.(rest.Object)
	if !ok {
		return nil, fmt.Errorf("make table row: %T has no metadata", obj)
	}
	out := make([]any, 0, len(columns))
	out = append(out, o.GetName())
	for i, p := range paths {
		value, ok := p.find(content(o))
		if !ok {
			out = append(out, nil)
			continue
		}
		out = append(out, cell(columns[i+1].Type, value))
	}
	return out, nil
}

// cell returns a value in the form of a column's type; nil if it does not fit.
func cell(columnType string, value any) any {
	switch columnType {
	case "string":
		return text(value)
	case "integer":
		switch v := value.(type) {
		case int64:
			return v
		case float64:
			return int64(v)
		}
	case "number":
		switch v := value.(type) {
		case int64:
			return float64(v)
		case float64:
			return v
		}
	case "boolean":
		if v, ok := value.(bool); ok {
			return v
		}
	case "date":
		if v, ok := value.(string); ok {
			var at metav1.Time
			if err := at.UnmarshalQueryParameter(v); err != nil {
				return "<invalid>"
			}
			return metatable.ConvertToHumanReadableDateType(at)
		}
	}
	return nil
}

// text formats a value of any type as kubectl formats the results of JSON paths.
func text(value any) any {
	var buf bytes.Buffer
	if err := jsonpath.New("cell").PrintResults(&buf, []reflect.Value{reflect.ValueOf(value)}); err != nil {
		return nil
	}
	return buf.String()
}

// setFields sets the selectable fields of the row.
func (c *custom) setFields() {
	if len(c.version.SelectableFields) == 0 {
		return
	}
	var fields []path
	for _, f := range c.version.SelectableFields {
		name := strings.TrimPrefix(f.JSONPath, ".")
		p, err := newPath(name, f.JSONPath)
		if err != nil {
			continue // the definition was validated
		}
		fields = append(fields, p)
		c.kind.FieldLabels = append(c.kind.FieldLabels, name)
	}
	c.kind.FieldsBy = &identity{}
	c.kind.Fields = func(obj runtime.Object) map[string]string {
		out := make(map[string]string, len(fields))
		o, ok := obj.(rest.Object)
		if !ok {
			return out
		}
		for _, p := range fields {
			out[p.name] = ""
			if value, ok := p.find(content(o)); ok && value != nil {
				out[p.name] = fmt.Sprint(value)
			}
		}
		return out
	}
}
