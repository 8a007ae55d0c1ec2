package handlers

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

// tables makes the Table form (docs/wire.md 3.2) for one request. Tables are not
// kept: the cells of many kinds hold ages, which change by themselves.
type tables struct {
	api     *API
	kind    *rest.Kind
	version string
	// metaVersion is the version of meta.k8s.io.
	metaVersion string
	include     metav1.IncludeObjectPolicy
}

// newTables reads includeObject from the request; the error is a 400.
func (a *API) newTables(r *http.Request, act *resource.Action, res *rest.Resource, f format) (*tables, error) {
	t := &tables{api: a, kind: res.Kind, version: act.Version, metaVersion: f.metaVersion, include: metav1.IncludeMetadata}
	include := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
	switch include {
	case "":
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		t.include = include
	default:
		return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " +
			field.Invalid(field.NewPath("includeObject"), include, "must be 'Metadata', 'Object', 'None', or empty").Error())
	}
	return t, nil
}

// encode returns the Table of the objects as JSON. headers false leaves the
// columns out.
func (t *tables) encode(head metav1.ListMeta, objects []*resource.Object, headers bool) ([]byte, error) {
	table := metav1.Table{
		ListMeta:          head,
		ColumnDefinitions: []metav1.TableColumnDefinition{},
		Rows:              make([]metav1.TableRow, len(objects)),
	}
	table.SetGroupVersionKind(metaGVK(t.metaVersion, "Table"))
	if headers {
		table.ColumnDefinitions = t.columns()
	}
	for i, o := range objects {
		row, err := t.row(o)
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

// columns returns the kind's columns, or those of kinds that have none.
func (t *tables) columns() []metav1.TableColumnDefinition {
	if t.kind.Columns != nil {
		return t.kind.Columns
	}
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
	}
}

func (t *tables) row(o *resource.Object) (metav1.TableRow, error) {
	cells, err := t.cells(o)
	if err != nil {
		return metav1.TableRow{}, err
	}
	row := metav1.TableRow{Cells: cells}
	switch t.include {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		row.Object, err = t.rowObject(o, form{version: t.version})
	default:
		row.Object, err = t.rowObject(o, form{version: t.metaVersion, partial: true})
	}
	return row, err
}

func (t *tables) rowObject(o *resource.Object, f form) (runtime.RawExtension, error) {
	data, err := t.api.render(t.kind, o, f)
	return runtime.RawExtension{Raw: data}, err
}

func (t *tables) cells(o *resource.Object) ([]any, error) {
	if t.kind.Columns == nil || t.kind.Cells == nil {
		partial, err := partialOf(t.kind, o)
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
