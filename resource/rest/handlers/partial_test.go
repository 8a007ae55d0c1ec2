package handlers

import (
	"testing"

	"portico/resource"
	"portico/resource/rest"
)

func TestPartialIsCaseSensitive(t *testing.T) {
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","Name":"b"},"Metadata":{"name":"c"}}`))
	if err != nil {
		t.Fatal(err)
	}
	partial, err := partialOf(&rest.Kind{}, o)
	if err != nil || partial.Name != "a" {
		t.Errorf("%+v, %v", partial, err)
	}
}
