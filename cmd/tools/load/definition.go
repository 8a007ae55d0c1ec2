package main

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func definitionName(group string) string { return "workloads." + group }

// definition is the CustomResourceDefinition of workloads in a group, with
// typed fields as people write them.
func definition(group string) ([]byte, error) {
	data, err := json.Marshal(&apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: definitionName(group)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "workloads", Kind: "Workload"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": workloadSpec()},
				}},
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode definition: %w", err)
	}
	return data, nil
}

// workloadSpec is the schema of what customResources writes.
func workloadSpec() apiextensionsv1.JSONSchemaProps {
	type props = map[string]apiextensionsv1.JSONSchemaProps
	text := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: ptr.To[int64](1 << 20)}
	texts := apiextensionsv1.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &text}}
	listOf := func(required []string, fields props) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{
			Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Required: required, Properties: fields},
		}}
	}
	return apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"image"}, Properties: props{
		"sequence": {Type: "integer", Format: "int64", Minimum: ptr.To(0.0)},
		"replicas": {Type: "integer", Format: "int32", Minimum: ptr.To(0.0), Maximum: ptr.To(1000.0), Default: &apiextensionsv1.JSON{Raw: []byte("1")}},
		"paused":   {Type: "boolean"},
		"image":    text,
		"schedule": {Type: "string", Pattern: `^[-0-9*/, ]+$`},
		"selector": texts,
		"limits":   texts,
		"ports": listOf([]string{"port"}, props{
			"name": text, "port": {Type: "integer", Format: "int32"},
			"protocol": {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"TCP"`)}, {Raw: []byte(`"UDP"`)}}, Default: &apiextensionsv1.JSON{Raw: []byte(`"TCP"`)}},
		}),
		"env": listOf([]string{"name"}, props{"name": text, "value": text}),
	}}
}
