package kinds

import (
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

// printer makes the rows of a table of objects of one internal type.
type printer struct {
	columns []metav1.TableColumnDefinition
	// rows is a func(obj, printers.GenerateOptions) ([]metav1.TableRow, error).
	rows reflect.Value
}

// printersByType has a printer for each type of pointer that rows takes.
type printersByType map[reflect.Type]printer

// TableHandler implements printers.PrintHandler.
func (p printersByType) TableHandler(columns []metav1.TableColumnDefinition, rows any) error {
	f := reflect.ValueOf(rows)
	p[f.Type().In(0)] = printer{columns, f}
	return nil
}

// allPrinters are the printers of kube-apiserver.
var allPrinters = sync.OnceValue(func() printersByType {
	all := printersByType{}
	internalversion.AddHandlers(all)
	return all
})

// table returns the columns of a kind and the function that makes the cells of an object. It panics if the kind has no
// printer.
func table(hub schema.GroupVersionKind) ([]metav1.TableColumnDefinition, func(runtime.Object) ([]any, error)) {
	obj, err := scheme.New(schema.GroupVersionKind{Group: hub.Group, Version: runtime.APIVersionInternal, Kind: hub.Kind})
	if err != nil {
		panic(err)
	}
	p, ok := allPrinters()[reflect.TypeOf(obj)]
	if !ok {
		panic(fmt.Sprintf("%s has no printer", hub))
	}
	sample, err := scheme.New(hub)
	if err != nil {
		panic(err)
	}
	external := reflect.TypeOf(sample)
	options := reflect.ValueOf(printers.GenerateOptions{Wide: true})
	return p.columns, func(obj runtime.Object) ([]any, error) {
		if reflect.TypeOf(obj) != external {
			return nil, fmt.Errorf("make table row: unexpected type %T", obj)
		}
		in := storedInternal(obj)
		out := p.rows.Call([]reflect.Value{reflect.ValueOf(in), options})
		if err, failed := out[1].Interface().(error); failed {
			return nil, fmt.Errorf("make table row: %w", err)
		}
		rows := out[0].Interface().([]metav1.TableRow)
		return rows[0].Cells, nil
	}
}
