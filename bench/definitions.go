package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func definitionName(group string) string { return "workloads." + group }

// definition returns the CustomResourceDefinition of Workloads in a group, with a
// typed schema.
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

// workloadSpec returns the schema of the objects of customResources.
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

// defineAll measures the time until a CustomResourceDefinition is served: for a
// tenth of them one at a time, for the rest with all workers.
func (r *runner) defineAll(ctx context.Context) error {
	alone := max(r.o.definitions/10, 1)
	before := r.procs.memory()
	for _, part := range []struct{ from, n, workers int }{{0, alone, 1}, {alone, r.o.definitions - alone, r.o.workers}} {
		if part.n == 0 {
			continue
		}
		spent := r.procs.cpu()
		got, err := r.define(ctx, part.from, part.n, part.workers)
		if err != nil {
			return err
		}
		got.cpu = r.procs.cpu().since(spent)
		what := fmt.Sprintf("%d definitions, %d at a time", part.n, part.workers)
		r.progress.say("%s: all served after %.1f s; median from the answer to the first LIST %v", what, got.took.Seconds(), got.quantile(0.5))
		r.report.add(row{what: what + ": accepted → first LIST", unit: "served/s", figure: sample.rate, ours: []sample{got}})
	}
	r.addMemory(fmt.Sprintf("after %d more definitions", r.o.definitions))
	// After other scenarios, freed garbage hides the memory of the definitions.
	if after := r.procs.memory(); len(after) > 0 && !r.o.needsObjects() {
		each := float64(after["crd"]-before["crd"]) / 1e3 / float64(r.o.definitions)
		r.report.note("a definition takes %.0f KB of the anonymous memory of the CRD server, with garbage", each)
	}
	return nil
}

// define creates definitions and waits until each is served. The latencies are
// from the answer to the create until the first successful LIST.
func (r *runner) define(ctx context.Context, from, n, workers int) (sample, error) {
	served := make([]time.Duration, n)
	var done atomic.Int64
	defer r.progress.follow("definitions", &done, n)()
	s, err := drive(ctx, workers, bound{n, r.o.limit}, &done, func(ctx context.Context, worker, i int) (int64, error) {
		group := fmt.Sprintf("g%d.%s", from+i, r.group)
		body, err := definition(group)
		if err != nil {
			return 0, err
		}
		if err := r.createDefinition(ctx, worker, group, body); err != nil {
			return 0, err
		}
		accepted := time.Now()
		err = retryWhileStarting(ctx, pollFast, func() error {
			_, err := r.target.discard(ctx, worker, request{path: "/apis/" + group + "/v1/workloads"})
			return err
		})
		served[i] = time.Since(accepted)
		return 0, err
	})
	if err == nil && s.ops < int64(n) {
		err = fmt.Errorf("only %d of %d were served within %v", s.ops, n, r.o.limit)
	}
	s.latencies = served
	return s, err
}
