package form

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// Tables encodes the Table form (docs/wire.md 3.2) for one request. Tables are not cached:
// the cells of many kinds are ages.
type Tables struct {
	cache   *Cache
	kind    *rest.Kind
	version string
	// MetaVersion is the version of meta.k8s.io.
	MetaVersion string
	// Include selects the object of each row.
	Include metav1.IncludeObjectPolicy
}

// NewTables returns the Tables of objects of a kind. It reads includeObject from the query;
// an invalid value is a 400.
func NewTables(r *http.Request, c *Cache, k *rest.Kind, version, metaVersion string) (*Tables, error) {
	t := &Tables{cache: c, kind: k, version: version, MetaVersion: metaVersion, Include: metav1.IncludeMetadata}
	include := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	switch include {
	case "":
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		t.Include = include
	default:
		return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " +
			field.Invalid(field.NewPath("includeObject"), include, "must be 'Metadata', 'Object', 'None', or empty").Error())
	}
	return t, nil
}

// Of returns the same Tables for another state of the kind.
func (t *Tables) Of(k *rest.Kind) *Tables {
	other := *t
	other.kind = k
	return &other
}

// Encode returns the Table of the objects as JSON, with the column definitions if headers
// is set.
func (t *Tables) Encode(head metav1.ListMeta, objects []*resource.Object, headers bool) ([]byte, error) {
	table := metav1.Table{
		ListMeta: head,
		Rows:     make([]metav1.TableRow, len(objects)),
	}
	table.SetGroupVersionKind(MetaGVK(t.MetaVersion, "Table"))
	if headers {
		table.ColumnDefinitions = t.Columns()
	}
	for i, o := range objects {
		row, err := t.Row(o)
		if err != nil {
			return nil, err
		}
		table.Rows[i] = row
	}
	data, err := json.Marshal(&table)
	if err != nil {
		return nil, fmt.Errorf("encode table: %w", err)
	}
	return data, nil
}

// Columns returns the kind's columns, or the default ones.
func (t *Tables) Columns() []metav1.TableColumnDefinition {
	if t.kind.Columns != nil {
		return t.kind.Columns
	}
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
	}
}

// Row returns the row of an object.
func (t *Tables) Row(o *resource.Object) (metav1.TableRow, error) {
	cells, err := t.cells(o)
	if err != nil {
		return metav1.TableRow{}, err
	}
	row := metav1.TableRow{Cells: cells}
	switch t.Include {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		row.Object, err = t.rowObject(o, Form{Version: t.version})
	default:
		row.Object, err = t.rowObject(o, Form{Version: t.MetaVersion, Partial: true})
	}
	return row, err
}

func (t *Tables) rowObject(o *resource.Object, f Form) (runtime.RawExtension, error) {
	data, err := t.cache.Encode(t.kind, o, f)
	return runtime.RawExtension{Raw: data}, err
}

func (t *Tables) cells(o *resource.Object) ([]any, error) {
	if t.kind.Columns == nil || t.kind.Cells == nil {
		partial, err := metadataOf(t.kind, o)
		if err != nil {
			return nil, t.kind.StoreReadError(o, err)
		}
		return []any{o.Name, partial.CreationTimestamp.UTC().Format(time.RFC3339)}, nil
	}
	obj, err := t.kind.Decode(o)
	if err != nil {
		return nil, err
	}
	cells, err := t.kind.Cells(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("make table row of %s: %w", o.Key(), err))
	}
	return cells, nil
}
