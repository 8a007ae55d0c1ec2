package custom

import (
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

const (
	// maxCellVisits and maxRowVisits bound the values that the path of one column visits in
	// an object, and the paths of all columns together. bytesPerVisit bytes of a printed cell count
	// as one value more, so that the cells of an object have at most 3.2 MB.
	maxCellVisits = 50_000
	maxRowVisits  = 200_000
	bytesPerVisit = 16
	// invalidCell is a cell that cannot be made within these bounds.
	invalidCell = "<invalid>"
)

// column is an additional column of a definition.
type column struct {
	kind string // the type of the cells
	// path is nil if it is too long to be parsed.
	path *jsonpath.Parser
}

// setColumns sets the columns of the row, which are upstream's: the name, then the
// definition's own, or the age if it has none.
func (c *custom) setColumns() {
	own := c.version.AdditionalPrinterColumns
	if len(own) == 0 {
		own = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
			Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		}}
	}
	var columns []column
	c.kind.Columns, columns = newColumns(own)
	c.kind.Cells = func(obj runtime.Object) ([]any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("make table row: it is a %T", obj)
		}
		return cells(columns, u), nil
	}
}

// newColumns returns the headers and columns of a definition. Those after a path that cannot
// be parsed are left out, as upstream does.
func newColumns(own []apiextensionsv1.CustomResourceColumnDefinition) (headers []metav1.TableColumnDefinition, columns []column) {
	headers = []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
	}
	for _, d := range own {
		var path *jsonpath.Parser
		if len(d.JSONPath) <= MaxPathLength {
			var err error
			if path, err = jsonpath.Parse(d.Name, "{"+d.JSONPath+"}"); err != nil {
				break
			}
		}
		description := d.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + d.JSONPath
		}
		headers = append(headers, metav1.TableColumnDefinition{Name: d.Name, Type: d.Type, Format: d.Format, Description: description, Priority: d.Priority})
		columns = append(columns, column{d.Type, path})
	}
	return headers, columns
}

// cells returns the name of an object and its cells, invalidCell for those that the bounds
// do not allow.
func cells(columns []column, u *unstructured.Unstructured) []any {
	out := make([]any, 1, 1+len(columns))
	out[0] = u.GetName()
	left := maxRowVisits
	for _, c := range columns {
		e := evaluation{min(left, maxCellVisits)}
		before := e.left
		cell := c.cell(&e, u.Object)
		left -= before - max(e.left, 0)
		if e.left < 0 {
			cell = invalidCell
		}
		out = append(out, cell)
	}
	return out
}

// cell returns the cell of an object; nil if it has none. It is not valid if e.left is less than 0.
func (c *column) cell(e *evaluation, object map[string]any) any {
	if c.path == nil {
		return invalidCell
	}
	value, ok, err := e.first(c.path, object)
	if err != nil || !ok {
		return nil
	}
	switch c.kind {
	case "string":
		return printed(e, value)
	case "integer":
		switch value := value.(type) {
		case int64:
			return value
		case float64:
			return int64(value)
		}
	case "number":
		switch value := value.(type) {
		case int64:
			return float64(value)
		case float64:
			return value
		}
	case "boolean":
		if value, ok := value.(bool); ok {
			return value
		}
	case "date":
		if text, ok := value.(string); ok {
			var at metav1.Time
			if at.UnmarshalQueryParameter(text) != nil {
				return invalidCell
			}
			return metatable.ConvertToHumanReadableDateType(at)
		}
	}
	return nil
}

// printer prints values as JSON and texts as they are.
var printer = jsonpath.New("")

// printed returns a value as text; nil if it cannot be printed.
func printed(e *evaluation, value any) any {
	if e.visit(sizeOf(value)/bytesPerVisit) != nil {
		return nil
	}
	var text strings.Builder
	if printer.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}) != nil {
		return nil
	}
	return text.String()
}
