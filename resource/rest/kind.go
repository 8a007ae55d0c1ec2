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
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource"
)

// Object is a decoded object, as strategies, admission and tables see it.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind is one row of a server's table of kinds: all that the verbs of this
// package need to serve a resource. It is immutable once served.
type Kind struct {
	resource.Info

	// Codec turns bytes into objects and back. Required.
	Codec Codec
	// Verbs are the verbs of the main resource; nil is the full set (create,
	// delete, deletecollection, get, list, patch, update, watch).
	Verbs []string
	// Strategy is the behaviour of writes.
	Strategy Strategy
	// Subresources, in name order.
	Subresources []Subresource
	// Columns and Cells make the Table form. Columns nil is Name and
	// Created At. Cells returns one cell per column.
	Columns []metav1.TableColumnDefinition
	Cells   func(obj runtime.Object) ([]any, error)
	// FieldLabels are the selectable fields beyond metadata.name and
	// metadata.namespace; Fields returns the value of each.
	FieldLabels []string
	Fields      func(obj runtime.Object) map[string]string
	// FieldsBy (comparable) identifies Fields in what objects remember of
	// themselves, and lives as long as they do. nil: the Kind itself, which is
	// right for one that is served until the end of the process.
	FieldsBy any
	// TTL, if not nil, gives the life time of a created or updated object.
	TTL func(obj runtime.Object) time.Duration
	// CreateOnUpdate lets PUT create (docs/wire.md 4.7).
	CreateOnUpdate bool
	// UnconditionalUpdate lets PUT go without resourceVersion (docs/wire.md 4.7).
	UnconditionalUpdate bool
	// ReturnDeleted has DELETE answer with the object instead of a Status.
	ReturnDeleted bool
	// Schema returns the OpenAPI v3 schema of a version, for kinds that are no
	// Go types; nil: it is made from the Go type. SchemaInputs identifies what
	// Schema would return without making it: the same text, the same schema.
	Schema       func(version string) (*spec.Schema, error)
	SchemaInputs func(version string) string
	// Deprecated returns the Warning that every request for a version gets; ""
	// is none. nil: no version is deprecated.
	Deprecated func(version string) string
	// Ownership returns what field ownership is tracked with (docs/wire.md 6.4);
	// the Codec must be Versioned. nil: managedFields are kept as they are
	// sent, and apply patches are refused with 415. It is called for every
	// write that needs it and the result is not kept, so that its owner decides
	// how long that lives.
	Ownership func() (managedfields.TypeConverter, error)
	// Review, if not nil, makes this a virtual resource that only supports
	// create: it answers the decoded body and nothing is stored.
	Review func(ctx context.Context, obj runtime.Object) (runtime.Object, error)
}

// Strategy is what distinguishes the writes of one kind from another's. Every
// function may be nil. Functions that take objects may change obj, never old.
type Strategy struct {
	// Default fills in defaults; called on every decoded body.
	Default func(obj Object)
	// ValidateName returns complaints about a name (prefix: a generateName).
	// nil is a DNS-1123 subdomain.
	ValidateName func(name string, prefix bool) []string
	// TrackGeneration has metadata.generation start at 1 and grow when
	// SpecChanged (nil: anything outside metadata and status) says so.
	TrackGeneration bool
	SpecChanged     func(obj, old Object) bool
	// PrepareCreate drops what a creator may not set (status).
	PrepareCreate func(ctx context.Context, obj Object)
	// PrepareUpdate restores the fields that an update may not change. That of a
	// subresource may ignore metadata.managedFields.
	PrepareUpdate func(ctx context.Context, obj, old Object)
	// Resets names the top-level fields that PrepareCreate and PrepareUpdate reset, and
	// which the writer therefore does not own. nil is status for a kind with that
	// subresource, and spec for the subresource, with metadata for kinds without Go types.
	Resets []string
	// Validate and ValidateUpdate check everything but metadata, which rest
	// checks for every kind.
	Validate       func(ctx context.Context, obj Object) field.ErrorList
	ValidateUpdate func(ctx context.Context, obj, old Object) field.ErrorList
	// Prevalidated may replace them: o is obj as encoded for storage, and old is nil
	// on create. With ok, errs are all errors that they would find. nil: they always
	// run.
	Prevalidated func(ctx context.Context, o *resource.Object, obj, old Object) (errs field.ErrorList, ok bool)
	// Warnings are sent as Warning headers. old is nil on create.
	Warnings func(ctx context.Context, obj, old Object) []string
	// Check may refuse a write with any StatusError before anything else
	// happens (RBAC escalation). old is nil on create; verb is create or update.
	Check func(ctx context.Context, verb string, obj, old Object) error
	// Allocate claims what a new object needs from elsewhere (cluster IPs),
	// after PrepareCreate and before Validate; release gives it back when the
	// write fails. It is not called for a dry run that has nothing to claim.
	Allocate func(ctx context.Context, obj, old Object, dryRun bool) (release func(), err error)
	// Grace returns for how many seconds a living object goes on while it is
	// being deleted, given the period that the client asks for (nil: none in
	// particular, never negative); 0 is not at all. nil: no object does.
	Grace func(obj Object, asked *int64) int64
	// BeginDelete marks an object whose deletion has begun and that cannot go
	// at once (Namespace: status.phase).
	BeginDelete func(obj Object)
	// Holds reports whether something besides metadata.finalizers keeps the
	// object while it is being deleted (Namespace: spec.finalizers).
	Holds func(obj Object) bool
	// DefaultPropagation is the policy without options; "" is Background.
	DefaultPropagation metav1.DeletionPropagation
	// IgnorePropagation has deletion options for dependents ignored (events).
	IgnorePropagation bool
	// LooseFinalizers permits finalizers that are neither standard nor
	// qualified with a domain (custom resources).
	LooseFinalizers bool
}

// Subresource is one subresource of a kind: a partial view of the stored
// object (Strategy set: status, finalize), a view of it that is another kind
// (Projection set: scale), a call (Create set: token), or a connection (Connect
// set: proxy, exec).
type Subresource struct {
	Name string
	// GVK is the kind of its bodies; zero is the parent's kind.
	GVK schema.GroupVersionKind
	// Verbs as in discovery; nil is get, patch, update.
	Verbs []string
	// Strategy, for a view of the stored object: PrepareUpdate copies from old
	// all that this view must not change.
	Strategy *Strategy
	// Projection, for a view that is another kind; GVK is that kind.
	Projection *Projection
	// Create, for a call: body is decoded by the parent's Codec as GVK.
	Create func(ctx context.Context, key resource.Key, body runtime.Object, dryRun bool) (runtime.Object, error)
	// Connect takes the whole request.
	Connect http.Handler
}

// Projection is how a stored object is seen and changed as another kind. What
// is written through it is checked by the strategy of the object's own kind.
type Projection struct {
	// Kind is the row of the view (see ScaleKind). Its group, only version and
	// kind, codec, defaults, columns and Ownership are used. Required.
	Kind *Kind
	// Get returns the view of an object in its hub form, with the object's
	// name, namespace, uid, resourceVersion and creationTimestamp. It must not
	// change obj. Errors are sent as they are.
	Get func(obj Object) (Object, error)
	// Begin, if not nil, is Get for the view that a write starts from, which
	// may exist where there is nothing to show yet (no replicas). Set can tell
	// by a mark in it that the write has left it so.
	Begin func(obj Object) (Object, error)
	// Set writes what may be changed through the view into obj. Metadata is no
	// concern of it. Errors are sent as they are.
	Set func(obj, view Object) error
	// Paths are where the view's spec.replicas is in each version of the
	// object (nil: not in that one), by group/version; owners of other versions
	// are dropped. A nil map leaves ownership alone.
	Paths managedfields.ResourcePathMappings
}

// Codec turns bytes of one kind into objects and back. Implementations: Typed
// (Go types of a scheme); the CRD server has its own. Safe for concurrent use.
type Codec interface {
	// Decode decodes a request body or stored bytes in any version the codec
	// knows into the kind's hub form, apiVersion and kind empty or not as the
	// hub form has it. defaultGVK is used where the body names none; a body of
	// another group, version or kind is a BadRequest (docs/wire.md 4.1).
	// With strict, unknown and duplicate fields are returned in strictErrs.
	Decode(data []byte, mediaType string, defaultGVK schema.GroupVersionKind, strict bool) (obj runtime.Object, strictErrs []error, err error)
	// DecodeStored decodes stored bytes into the hub form, resourceVersion set.
	DecodeStored(o *resource.Object) (runtime.Object, error)
	// EncodeStored encodes a hub form into the bytes to store. resourceVersion
	// is left out.
	EncodeStored(obj runtime.Object) (*resource.Object, error)
	// Encode encodes a hub form as the version gvk in the media type
	// (application/json, application/yaml, application/vnd.kubernetes.protobuf).
	Encode(obj runtime.Object, gvk schema.GroupVersionKind, mediaType string) ([]byte, error)
	// StrategicMerge reports whether strategic merge patches are supported, by
	// returning an empty versioned Go struct for gvk; nil if they are not.
	StrategicMerge(gvk schema.GroupVersionKind) runtime.Object
}

// Versioned is a Codec that also converts without bytes, which field ownership
// (Kind.Ownership) needs: owners are recorded with the version they wrote in.
type Versioned interface {
	Codec
	// Hub returns the group and version of the hub form.
	Hub() schema.GroupVersion
	// ConvertTo returns obj as the group and version gv of the kind, apiVersion
	// and kind set. obj is the hub form, a result of ConvertTo, or an
	// unstructured object in any version, named by its apiVersion; it may be
	// empty but for that. Nothing is pruned or defaulted. obj is not changed,
	// but the result may share memory with it, or be it. The error for a
	// version that the kind has not (any more) satisfies
	// runtime.IsNotRegisteredError, without wrapping.
	ConvertTo(obj runtime.Object, gv schema.GroupVersion) (runtime.Object, error)
}

// CanonicalCodec is a Codec that readers may see other bytes of than the stored
// ones, because its schema prunes and adds defaults on reading.
type CanonicalCodec interface {
	Codec
	// Canonical reports whether stored bytes of the right version can be served as
	// they are; others are decoded and encoded. It is called on every read and must
	// be cheap. It must not change o.
	Canonical(o *resource.Object) bool
}

// Resource is a served kind and where it is kept. Store is nil for virtual
// kinds (Kind.Review).
type Resource struct {
	*Kind
	Store resource.Store
}

// Operation of an admission request.
type Operation string

const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes is what admission decides on.
type Attributes struct {
	Action    *resource.Action
	Kind      *Kind
	Operation Operation
	Key       resource.Key
	// Object is the new object (nil on delete); Mutate may change it. Old is
	// the stored one (nil on create). Through a view that is another kind
	// (Subresource.Projection) they are views.
	Object, Old runtime.Object
	DryRun      bool
	// Options are the create, update (also of a patch) or delete options.
	Options runtime.Object
}

// Admission is asked about every write. Errors are StatusErrors.
type Admission interface {
	// Mutate runs before validation and may change Object; what stands in its
	// metadata.managedFields is replaced, not changed in place.
	Mutate(ctx context.Context, a *Attributes) error
	// Validate runs after validation, inside the update loop.
	Validate(ctx context.Context, a *Attributes) error
}

// Warn adds a Warning header (RFC 7234 code 299) to the response. Set by
// resource/serve; rest only calls it.
type Warn func(ctx context.Context, text string)
