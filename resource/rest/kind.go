// Package rest describes what a server serves: a [Kind] with its [Strategy], [Subresource]s
// and [Codec], and the [Resource] that adds its store. Package handlers implements the
// verbs on it, as k8s.io/apiserver's endpoints/handlers does on registry/rest.
//
// Runs in: gateway, core, crd.
package rest

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource"
)

// Kind describes one kind to package handlers, which serves it. It must not change once it
// is served.
type Kind struct {
	resource.Info

	// Codec converts between bytes and objects. Required.
	Codec Codec
	// Prepare, if not nil, makes decoding stored objects that are read together cheaper than one
	// by one: it converts them in one call of a webhook. Errors are those of the conversion.
	Prepare func(objects []*resource.Object) error
	// Equivalents returns the group/versions in which other rows serve the same objects, or a subresource of
	// them if that is not "": other versions of a custom resource, events of the other group. Rules of admission
	// for one of them apply to writes of this kind too (matchPolicy Equivalent), so that the Codec must decode and
	// encode all of them. If it is nil, no other row serves the objects.
	Equivalents func(subresource string) []schema.GroupVersion
	// Verbs are the verbs of the main resource; nil: create, delete, deletecollection, get,
	// list, patch, update and watch.
	Verbs []string
	// Strategy is the behaviour of writes.
	Strategy Strategy
	// Subresources, in the order of discovery: that of their names, but status before scale for
	// custom resources.
	Subresources []Subresource
	// Columns and Cells define the Table form; Cells returns one cell for each column.
	// Columns nil: Name and Created At.
	Columns []metav1.TableColumnDefinition
	Cells   func(obj runtime.Object) ([]any, error)
	// FieldLabels are the fields that field selectors may use beyond metadata.name and
	// metadata.namespace. Fields returns their values.
	FieldLabels []string
	Fields      func(obj runtime.Object) map[string]string
	// StoredFields, if not nil, is a faster way to Fields that does not decode the object; ok false: it must be
	// decoded.
	StoredFields func(o *resource.Object) (values map[string]string, ok bool)
	// Current returns the kind as it is served now, for watches that outlast a change of it; nil: it
	// never changes.
	Current func() *Kind
	// FieldsBy is the comparable key under which stored objects cache the result of Fields;
	// objects keep it in memory. nil: the *Kind itself, for kinds that are served until the
	// process ends.
	FieldsBy any
	// TTL, if not nil, returns the time to live of a created or updated object; 0: it does
	// not expire.
	TTL func(obj runtime.Object) time.Duration
	// CreateOnUpdate permits PUT to create the object (docs/wire.md 4.7).
	CreateOnUpdate bool
	// UnconditionalUpdate permits PUT without resourceVersion (docs/wire.md 4.7).
	UnconditionalUpdate bool
	// ReturnDeleted makes DELETE respond with the object instead of a Status.
	ReturnDeleted bool
	// Definitions returns the OpenAPI definitions of the Go types of a kind that is not of
	// Kubernetes. nil: they are Kubernetes' own.
	Definitions common.GetOpenAPIDefinitions
	// Schema returns the OpenAPI v3 schema of a version for kinds without Go types; nil: the
	// schema is the definition of the Go type. SchemaInputs returns a key of what Schema would
	// return, without building it: equal keys mean equal schemas.
	Schema       func(version string) (*spec.Schema, error)
	SchemaInputs func(version string) string
	// Deprecated returns the Warning for every request of a version, "" for none. nil: no
	// version is deprecated.
	Deprecated func(version string) string
	// Ownership returns the types by which field ownership is tracked (docs/wire.md 6.4);
	// the Codec must be Versioned. nil: managedFields are stored as they are sent, and apply
	// patches are a 415. It is called for every write that needs it, so that the
	// implementation decides how long the types stay in memory.
	Ownership func() (managedfields.TypeConverter, error)
	// Converted, if not nil, returns the types of objects that are converted to the versions of other entries of
	// managedFields, in which they may have fields that those versions lack. If it is nil, Ownership has these types too.
	Converted func() (managedfields.TypeConverter, error)
	// Review, if not nil, makes this a virtual resource with the verb create alone: the
	// response is what Review returns for the decoded body, and nothing is stored.
	Review func(ctx context.Context, obj runtime.Object) (runtime.Object, error)
	// Call, if not nil, makes this a virtual resource with the verb create alone, like Review,
	// for an action on the object that the body names (bindings): admission sees it.
	Call Call
	// Computed makes this a resource that is only read: the Store of its Resource computes
	// the objects. Verbs is get and list, or one of them.
	Computed bool
}

// Virtual reports whether objects of the kind are not stored.
func (k *Kind) Virtual() bool { return k.Review != nil || k.Call != nil || k.Computed }

// Call is an action on the object with the key. It returns the object to respond with; a
// Status without a code gets that of the response. body was decoded by the Codec of the kind.
type Call func(ctx context.Context, key resource.Key, body runtime.Object, dryRun bool) (runtime.Object, error)

// Strategy is the behaviour of writes that differs between kinds. Every function may be
// nil. Functions that take objects may change obj. Only PrepareUpdate may change old.
type Strategy struct {
	// Default sets defaults in every decoded body.
	Default func(obj Object)
	// ValidateName returns the errors of a name (prefix: of a generateName). nil: a name is
	// a DNS-1123 subdomain.
	ValidateName func(name string, prefix bool) []string
	// TrackGeneration makes metadata.generation start at 1 and increase when SpecChanged
	// reports a change (nil: when anything outside metadata and status changes).
	TrackGeneration bool
	SpecChanged     func(obj, old Object) bool
	// PrepareCreate clears the fields that a creator may not set (status).
	PrepareCreate func(ctx context.Context, obj Object)
	// PrepareUpdate restores the fields that an update may not change. It may also normalize old, so that a comparison
	// with obj shows only what the client changed. The one of a subresource may ignore metadata.managedFields.
	PrepareUpdate func(ctx context.Context, obj, old Object)
	// Resets are the fields that PrepareCreate and PrepareUpdate reset, as paths with dots;
	// their writer does not become their field manager. nil: status for a kind with that
	// subresource; for that subresource spec, and metadata if the kind has no Go types.
	Resets []string
	// ValidatesMetadata is set if Validate and ValidateUpdate validate the metadata, too. If it is not set, package
	// handlers does.
	ValidatesMetadata bool
	// Validate and ValidateUpdate return the errors of an object.
	Validate       func(ctx context.Context, obj Object) field.ErrorList
	ValidateUpdate func(ctx context.Context, obj, old Object) field.ErrorList
	// Prevalidated may replace them: o is obj as encoded for storage, and old is nil on
	// create. With ok, errs are all errors that they would return. nil: they always run.
	Prevalidated func(ctx context.Context, o *resource.Object, obj, old Object) (errs field.ErrorList, ok bool)
	// Warnings are sent as Warning headers. old is nil on create.
	Warnings func(ctx context.Context, obj, old Object) []string
	// DeleteWarnings are sent as Warning headers if the deletion of obj has to wait (Namespace: for servers that do not
	// respond).
	DeleteWarnings func(ctx context.Context, obj Object) []string
	// Check may reject a write, after mutating admission and before anything else (RBAC
	// escalation). verb is create or update; old is nil on create. Errors are StatusErrors.
	Check func(ctx context.Context, verb string, obj, old Object) error
	// Allocate reserves what a new object needs elsewhere (cluster IPs), between
	// PrepareCreate and Validate; release returns it if the write fails. For a dry run it
	// reserves nothing that lasts.
	Allocate func(ctx context.Context, obj, old Object, dryRun bool) (release func(), err error)
	// Grace returns the grace period of an object to be deleted, in seconds. asked is
	// the period of the DeleteOptions, nil or not negative. nil: always 0.
	Grace func(obj Object, asked *int64) int64
	// BeginDelete changes an object when its deletion begins and has to wait (Namespace:
	// status.phase).
	BeginDelete func(obj Object)
	// Holds reports whether anything besides metadata.finalizers delays the deletion of the
	// object (Namespace: spec.finalizers).
	Holds func(obj Object) bool
	// DefaultPropagation is the propagation policy for DeleteOptions without one; "":
	// Background.
	DefaultPropagation metav1.DeletionPropagation
	// IgnorePropagation makes every propagation policy Background (events).
	IgnorePropagation bool
	// LooseFinalizers permits finalizers that are neither standard nor qualified with a
	// domain (definitions and custom resources).
	LooseFinalizers bool
}

// Subresource is one subresource of a kind. Connect makes it a connection (proxy, exec),
// Create a POST that stores nothing (token), and Projection the object as another kind
// (scale). Otherwise it is a partial update of the stored object by Strategy (status,
// finalize).
type Subresource struct {
	Name string
	// GVK is the kind of its bodies; zero: the kind of the resource. A Create also takes
	// bodies of OldGVK, if that is set.
	GVK, OldGVK schema.GroupVersionKind
	// Verbs as in discovery; nil: get, patch and update.
	Verbs []string
	// Strategy replaces that of the kind. Its PrepareUpdate copies from old everything that
	// this subresource must not change. With Create only its Default is called.
	Strategy *Strategy
	// Projection is set for a subresource of another kind; GVK is that kind.
	Projection *Projection
	// Create is called with a body of GVK, which may have no name. Named: it must have the name of
	// the URL. OtherName returns the error for another name; if it is nil, the error is a BadRequest.
	Create    Call
	Named     bool
	OtherName func(name, url string) error
	Connect   *Connection
}

// Connection is a subresource that serves the whole request, such as a stream or a proxy.
type Connection struct {
	// Methods are the HTTP methods that it serves.
	Methods []string
	// Options returns new options: a pointer to a struct. Its fields are set from the
	// parameters of their JSON names. With Path the field path is the rest of the path.
	Options func() runtime.Object
	Path    bool
	// Admitted: admission decides, with the operation CONNECT and the options as object.
	Admitted bool
	// NeedsCreate reports whether a request with another verb also needs the permission to
	// create. nil: none does.
	NeedsCreate func(r *http.Request) bool
	// Serve serves the request. It returns an error only before it has written or hijacked.
	Serve func(w http.ResponseWriter, r *http.Request, key resource.Key, opts runtime.Object) error
}

// Projection describes how a stored object is read and changed as another kind. The result
// of a write through it is checked by the Strategy of the object's own kind.
type Projection struct {
	// Kind is the projected kind (see ScaleKind). Its group, only version, kind, Codec,
	// defaults, columns and Ownership are used. Required.
	Kind *Kind
	// Get returns the projection of an object in its hub form, with the object's name,
	// namespace, uid, resourceVersion and creationTimestamp. It must not change obj. Errors
	// are sent to the client.
	Get func(obj Object) (Object, error)
	// Begin, if not nil, replaces Get for the projection that a write changes. It may return
	// one where Get fails (no replicas), with a sentinel by which Set recognizes that the
	// write has not changed it.
	Begin func(obj Object) (Object, error)
	// Set copies the writable fields of the projection into obj, metadata excepted. Errors
	// are sent to the client.
	Set func(obj, projected Object) error
	// Paths are the paths of spec.replicas of the projection in each group/version of the
	// object (nil: that version has none); managers of other versions are dropped. A nil map
	// disables field ownership.
	Paths managedfields.ResourcePathMappings
}

// Resource is a served kind with its store, which is nil for virtual kinds (Kind.Virtual) but those that
// are Computed.
type Resource struct {
	*Kind
	Store resource.Store
}

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
