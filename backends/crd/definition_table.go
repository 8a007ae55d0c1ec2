package crd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// definitionColumns are the columns of kubectl get crd.
func definitionColumns() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Scope", Type: "string", Description: "Whether the objects are in namespaces"},
		{Name: "Versions", Type: "string", Description: "The served versions; the storage version is marked"},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
		{Name: "Group", Type: "string", Priority: 1, Description: "The API group of the objects"},
		{Name: "Kind", Type: "string", Priority: 1, Description: "The kind of the objects"},
		{Name: "ShortNames", Type: "string", Priority: 1, Description: "Short names of the resource"},
		{Name: "Established", Type: "boolean", Priority: 1, Description: "Whether the objects can be reached"},
	}
}

func definitionCells(obj runtime.Object) ([]any, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("make table row: it is a %T", obj)
	}
	var versions []string
	for _, v := range crd.Spec.Versions {
		switch {
		case v.Served && v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions) // as upstream shows them, by name alone
	return []any{
		crd.Name, string(crd.Spec.Scope), strings.Join(versions, ","), crd.CreationTimestamp.UTC().Format(time.RFC3339),
		crd.Spec.Group, crd.Spec.Names.Kind, strings.Join(crd.Spec.Names.ShortNames, ","), isEstablished(crd),
	}, nil
}
