package backend

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// Kind returns the row that serves Backends: cluster-scoped, stored as JSON, with a status
// subresource. It has no Ownership, which needs the OpenAPI schema.
func Kind() (*rest.Kind, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Backend: %w", err)
	}
	codec, ok := rest.TypedJSON(scheme, GroupVersion().WithKind("Backend")).(rest.Versioned)
	if !ok {
		return nil, errors.New("register Backend: its codec has no versions")
	}
	return &rest.Kind{
		Info: resource.Info{
			Group: Group, Versions: []string{Version}, Resource: "backends", Kind: "Backend",
			ShortNames: []string{"be"}, Categories: []string{"api-extensions"}, Path: Group + "/backends",
		},
		Codec:    namingCodec{codec},
		Strategy: strategy(),
		Subresources: []rest.Subresource{{
			Name: "status",
			Strategy: &rest.Strategy{
				Resets:        []string{"metadata", "spec"},
				PrepareUpdate: keepAllButStatus,
				ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList {
					return validateStatus(&obj.(*Backend).Status)
				},
			},
		}},
		Columns: columns(),
		Cells:   cells,
	}, nil
}

// keepAllButStatus restores what a write of the status must not change.
func keepAllButStatus(_ context.Context, obj, old rest.Object) {
	next := obj.(*Backend)
	status, owners, version := next.Status, next.GetManagedFields(), next.GetResourceVersion()
	old.(*Backend).DeepCopyInto(next)
	next.Status = status
	next.SetManagedFields(owners)
	next.SetResourceVersion(version)
}

func strategy() rest.Strategy {
	validate := func(obj rest.Object) field.ErrorList { return Validate(obj.(*Backend)) }
	return rest.Strategy{
		// All other defaults are in Policy.
		Default: func(obj rest.Object) {
			if s := obj.(*Backend).Spec.Service; s != nil && s.Port == nil {
				port := s.PortOf()
				s.Port = &port
			}
		},
		TrackGeneration: true,
		PrepareCreate:   func(_ context.Context, obj rest.Object) { obj.(*Backend).Status = Status{} },
		PrepareUpdate: func(_ context.Context, obj, old rest.Object) {
			obj.(*Backend).Status = old.(*Backend).Status.DeepCopy()
		},
		Validate:       func(_ context.Context, obj rest.Object) field.ErrorList { return validate(obj) },
		ValidateUpdate: func(_ context.Context, obj, _ rest.Object) field.ErrorList { return validate(obj) },
		Warnings:       func(_ context.Context, obj, _ rest.Object) []string { return warnings(&obj.(*Backend).Spec) },
	}
}

// warnings describe what is valid and may be a mistake.
func warnings(s *Spec) (out []string) {
	idle := len(s.Endpoints) > 0
	for i, e := range s.Endpoints {
		idle = idle && e.WeightOf() == 0
		switch a, err := ParseURL(e.URL); {
		case err != nil:
		case a.Scheme == HTTP && s.REST == nil:
			out = append(out, fmt.Sprintf("spec.endpoints[%d].url: users are named in plain text; any client that reaches this endpoint can impersonate any user", i))
		case a.Scheme == Unix && s.TLS != nil:
			out = append(out, fmt.Sprintf("spec.endpoints[%d].url: tls is not used on a unix socket, which the permissions of its file protect", i))
		}
	}
	if idle {
		out = append(out, "spec.endpoints: every weight is 0, so that no endpoint gets requests")
	}
	if s.TLS != nil && s.TLS.InsecureSkipVerify {
		out = append(out, "spec.tls.insecureSkipVerify: any server at these addresses gets users' requests")
	}
	return out
}
