package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/pkg/warning"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/client"
	"portico/resource/loop"
	"portico/resource/rest"
)

// DefaultFirstRead is EngineConfig.FirstRead where that is 0.
const DefaultFirstRead = time.Second

// EngineConfig is what an Engine needs.
type EngineConfig struct {
	// BaseURL and Transport are the way to the whole API: configurations,
	// namespaces, Services, parameters of policies and access reviews are read
	// through it. Transport may be nil if Store is not: then there are no
	// parameters and no access reviews.
	BaseURL   string
	Transport http.RoundTripper
	// UserAgent is sent with every request; "" is that of package client.
	UserAgent string
	// Store returns this process's own store of a resource, and nil where it
	// has none; that is read through Transport then. nil: it has none at all.
	Store func(info *resource.Info) resource.Store
	// Warn receives the warnings of webhooks and policies; nil drops them.
	Warn rest.Warn
	// Authorizer answers the `authorizer` variable of CEL expressions; nil: it
	// is answered by SubjectAccessReviews.
	Authorizer authz.Authorizer
	// Services finds the address of a webhook that is named by its Service;
	// nil: it is read from the Service and its EndpointSlices. There is no
	// cluster network here that would know.
	Services webhookutil.ServiceResolver
	// Credentials are shown to webhooks; nil: none.
	Credentials webhookutil.AuthenticationInfoResolver
	// FirstRead is how long a write waits for configurations that were never
	// read yet; 0 is DefaultFirstRead. After that it is a 503.
	FirstRead time.Duration
	// Metrics time webhooks and policies; nil: none.
	Metrics *Metrics
	// Waited receives how long a write waited for webhooks, with the part
	// PartMutatingWebhooks or PartValidatingWebhooks; nil: none.
	Waited func(ctx context.Context, part string, d time.Duration)
	// Logger takes what goes wrong; nil is slog.Default().
	Logger *slog.Logger
}

// Engine calls admission webhooks and evaluates admission policies for writes, in the
// order of docs/wire.md 10.1. It follows their configurations while Run runs. As upstream,
// webhooks see none of the six kinds of admissionregistration.k8s.io, policies none of
// its four kinds of policies and bindings, and neither sees reviews: a lock-out can be
// undone. Safe for concurrent use.
type Engine struct {
	cfg    EngineConfig
	logger *slog.Logger
	scheme *runtime.Scheme
	client *client.Client // nil without Transport

	namespaces *namespaces
	matcher    *matching.Matcher
	authorizer upstream.UnconditionalAuthorizer

	configurations     map[string]configurationSource // by resource
	mutatingWebhooks   *webhooks[*admissionv1.MutatingWebhookConfiguration]
	validatingWebhooks *webhooks[*admissionv1.ValidatingWebhookConfiguration]
	mutatingPolicies   *mutatingPolicies
	validatingPolicies *validatingPolicies
}

var _ rest.Admission = (*Engine)(nil)

// NewEngine assembles an engine. It opens no connection.
func NewEngine(cfg EngineConfig) (*Engine, error) {
	if cfg.Transport == nil && cfg.Store == nil {
		return nil, errors.New("assemble admission engine: there is no way to read configurations")
	}
	if cfg.FirstRead == 0 {
		cfg.FirstRead = DefaultFirstRead
	}
	if cfg.Waited == nil {
		cfg.Waited = func(context.Context, string, time.Duration) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	e := &Engine{cfg: cfg, logger: cfg.Logger, scheme: runtime.NewScheme(), configurations: map[string]configurationSource{}}
	if err := admissionv1.AddToScheme(e.scheme); err != nil {
		return nil, fmt.Errorf("assemble admission engine: %w", err)
	}
	e.scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Namespace{}, &corev1.Service{})
	e.scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	if cfg.Transport != nil {
		e.client = client.New(client.Config{BaseURL: cfg.BaseURL, Transport: cfg.Transport, UserAgent: cfg.UserAgent})
	}
	if e.cfg.Services == nil {
		e.cfg.Services = newServiceResolver(e)
	}
	e.authorizer = newAuthorizer(e)
	e.namespaces = newNamespaces(e)
	e.matcher = matching.NewMatcher(e.namespaces, e.namespaces.client())
	e.mutatingWebhooks = newMutatingWebhooks(e)
	e.validatingWebhooks = newValidatingWebhooks(e)
	e.mutatingPolicies = newMutatingPolicies(e)
	e.validatingPolicies = newValidatingPolicies(e)
	return e, nil
}

// store returns the store of a resource: the process's own or one over HTTP.
func (e *Engine) store(info *resource.Info) resource.Store {
	if e.cfg.Store != nil {
		if s := e.cfg.Store(info); s != nil {
			return s
		}
	}
	if e.client == nil {
		return unreachable{info: info}
	}
	return e.client.Store(info)
}

// Run follows webhooks and policies until ctx ends, and returns ctx's error
// once everything it started has ended. It waits for nothing before.
func (e *Engine) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){
		e.namespaces.run, e.mutatingWebhooks.run, e.validatingWebhooks.run, e.mutatingPolicies.run, e.validatingPolicies.run,
	} {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

// Ready returns nil once all configurations were read, which they stay. It is
// for health checks; writes wait by themselves.
func (e *Engine) Ready() error {
	for _, g := range []*gate{e.mutatingWebhooks.known, e.validatingWebhooks.known, e.mutatingPolicies.known, e.validatingPolicies.known} {
		if !g.isOpen() {
			return errUnknown()
		}
	}
	return nil
}

// Configurations returns the state of each kind of configuration as it was read
// last, by resource. Kinds that were not read yet are left out.
func (e *Engine) Configurations() map[string]*loop.Snapshot {
	out := map[string]*loop.Snapshot{}
	for name, s := range e.configurations {
		if last := s.last(); last != nil {
			out[name] = last
		}
	}
	return out
}

// Restore makes objects, which an earlier process read, the known state of one
// kind of configuration until its store is read. name is that of its resource;
// others are ignored.
func (e *Engine) Restore(name string, objects []*resource.Object) {
	if s := e.configurations[name]; s != nil {
		s.restore(objects)
	}
}

func errUnknown() error {
	return resource.Unavailable("admission webhooks and policies are not known yet", 1)
}

// Mutate evaluates mutating policies, calls mutating webhooks, and repeats those with
// reinvocation if the object was changed.
func (e *Engine) Mutate(ctx context.Context, a *rest.Attributes) error {
	return chain{e}.Mutate(ctx, a)
}

// Validate evaluates validating policies and calls validating webhooks.
func (e *Engine) Validate(ctx context.Context, a *rest.Attributes) error {
	return e.begin(a).validate(ctx)
}

// warned returns a context whose warnings go where ctx's warnings go.
func (e *Engine) warned(ctx context.Context) context.Context {
	if e.cfg.Warn == nil {
		return ctx
	}
	return warning.WithWarningRecorder(ctx, &recorder{ctx, e.cfg.Warn})
}

// recorder lets the engines warn the client of one request.
type recorder struct {
	ctx  context.Context
	warn rest.Warn
}

// AddWarning implements warning.Recorder. The agent is always empty.
func (r *recorder) AddWarning(_, text string) { r.warn(r.ctx, text) }

// asStatus makes a StatusError of an engine's error: one that is none is a
// failure in here.
func asStatus(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
