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

// tables makes tables as kube-apiserver does.
var tables = sync.OnceValue(func() *printers.HumanReadableGenerator {
	return printers.NewTableGenerator().With(internalversion.AddHandlers)
})

// table returns the columns of a kind and the function that makes the cells of an object. It panics if the kind has no
// printer.
func table(hub schema.GroupVersionKind) ([]metav1.TableColumnDefinition, func(runtime.Object) ([]any, error)) {
	empty, err := scheme.New(hub)
	if err != nil {
		panic(err)
	}
	made, err := tables().GenerateTable(mustInternal(empty), printers.GenerateOptions{Wide: true})
	if err != nil {
		panic(fmt.Sprintf("make table of %s: %v", hub, err))
	}
	return made.ColumnDefinitions, func(obj runtime.Object) ([]any, error) {
		if reflect.TypeOf(obj) != reflect.TypeOf(empty) {
			return nil, fmt.Errorf("make table row: unexpected type %T", obj)
		}
		t, err := tables().GenerateTable(StoredInternal(obj), printers.GenerateOptions{NoHeaders: true, Wide: true})
		if err != nil {
			return nil, fmt.Errorf("make table row: %w", err)
		}
		return t.Rows[0].Cells, nil
	}
}
