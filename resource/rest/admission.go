package rest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
)

// Operation is the operation of an admission request (admission.k8s.io/v1).
type Operation string

const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes describe the write that admission decides on.
type Attributes struct {
	Action    *resource.Action
	Kind      *Kind
	Operation Operation
	Key       resource.Key
	// Object is the new object, nil on delete; Mutate may change it. Old is the stored
	// object, nil on create. For a Subresource with a Projection both are the projections.
	Object, Old runtime.Object
	DryRun      bool
	// Options are CreateOptions, UpdateOptions (also for a patch) or DeleteOptions.
	Options runtime.Object
}

// Admission checks every write. Its errors are StatusErrors. It must be safe for concurrent
// use.
type Admission interface {
	// Mutate runs before validation and may change Object. It may replace
	// metadata.managedFields but must not change the entries in place.
	Mutate(ctx context.Context, a *Attributes) error
	// Validate runs after validation, once for each attempt of an update.
	Validate(ctx context.Context, a *Attributes) error
}

// Warn adds a Warning header (RFC 7234, 5.5, code 299) to the response of the request that
// ctx belongs to.
type Warn func(ctx context.Context, text string)
