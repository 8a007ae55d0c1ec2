package admission

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	upstream "k8s.io/apiserver/pkg/authorization/authorizer"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/client"
	"portico/resource/egress"
	"portico/resource/loop"
	"portico/resource/rest"
	"portico/resource/rest/informer"
)

// DefaultFirstRead is the default of EngineConfig.FirstRead.
const DefaultFirstRead = time.Second

// EngineConfig configures an Engine.
type EngineConfig struct {
	// BaseURL and Transport reach the gateway, from which configurations, namespaces,
	// Services, parameters of policies and access reviews are read. Required.
	BaseURL   string
	Transport http.RoundTripper
	// UserAgent of the requests; "": that of package client.
	UserAgent string
	// Source returns the store of a resource in this process, and the codec of its objects; a nil
	// codec decodes version v1 only. Resources for which it returns a nil store are read through
	// Transport. If Source is nil, all are.
	Source func(info *resource.Info) (resource.Store, rest.Codec)
	// Egress says how webhooks are reached. Default: directly.
	Egress egress.Selector
	// ConfigFile is an AdmissionConfiguration with the credentials for webhooks, read once; "": none.
	ConfigFile string
	// Warn receives the warnings of webhooks and policies; nil drops them.
	Warn rest.Warn
	// Authorizer is the variable `authorizer` of CEL expressions; nil: SubjectAccessReviews.
	Authorizer authz.Authorizer
	// FirstRead is how long a write waits for the first read of configurations before it is
	// rejected with 503. Default DefaultFirstRead.
	FirstRead time.Duration
	// Waited is called with the time that a write waited for webhooks. part is
	// PartMutatingWebhooks or PartValidatingWebhooks. May be nil.
	Waited func(ctx context.Context, part string, d time.Duration)
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// clientConfig returns the configuration of clients of the gateway, without limits.
func (cfg *EngineConfig) clientConfig() *restclient.Config {
	return &restclient.Config{Host: cfg.BaseURL, UserAgent: cfg.UserAgent, QPS: -1}
}

// Engine calls admission webhooks and evaluates admission policies, in the order of
// docs/wire.md 10.1. It follows their configurations while Run runs. As upstream, webhooks do
// not apply to the six kinds of admissionregistration.k8s.io, policies not to its four kinds
// of policies and bindings, and neither to reviews: a lock-out can be undone. Static manifests
// apply to all but reviews. Safe for concurrent use. A nil Engine permits everything.
type Engine struct {
	cfg    EngineConfig
	logger *slog.Logger
	scheme *runtime.Scheme
	client *client.Client

	factory        informers.SharedInformerFactory // of the informers below
	namespaces     *namespaces
	configurations map[string]*informer.Informer // by resource
	matcher        *matching.Matcher
	authorizer     upstream.UnconditionalAuthorizer
	services       *serviceResolver
	// configured are the configurations of plugins in EngineConfig.ConfigFile, and credentials those for webhooks, by
	// plugin.
	configured  map[string][]byte
	credentials map[string]webhookutil.AuthenticationInfoResolver
	// parameters and mapper find the parameters of policies.
	parameters dynamic.Interface
	mapper     meta.RESTMapper

	mutatingWebhooks   *webhooks
	validatingWebhooks *webhooks
	mutatingPolicies   *policies[mutating.PolicyHook]
	validatingPolicies *policies[validating.PolicyHook]
	// stopped is closed when Run ends.
	stopped chan struct{}
}

var _ rest.Admission = (*Engine)(nil)

// NewEngine returns an Engine. It opens no connection.
func NewEngine(cfg EngineConfig) (*Engine, error) {
	if cfg.Transport == nil {
		return nil, errors.New("make admission engine: Transport is not set")
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
	e := &Engine{cfg: cfg, logger: cfg.Logger, scheme: runtime.NewScheme(), stopped: make(chan struct{})}
	var err error
	if e.configured, e.credentials, err = readConfiguration(cfg.ConfigFile); err == nil {
		err = e.connect()
	}
	if err != nil {
		return nil, fmt.Errorf("make admission engine: %w", err)
	}
	e.scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Namespace{}, &corev1.Service{})
	e.scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	e.services = newServiceResolver(e)
	e.namespaces = newNamespaces(e)
	e.factory, e.configurations = informers.NewSharedInformerFactory(nil, 0), map[string]*informer.Informer{}
	e.register(&corev1.Namespace{}, e.namespaces)
	e.matcher = matching.NewMatcher(e.factory.Core().V1().Namespaces().Lister(), e.namespaces.client())
	e.mutatingWebhooks = newMutatingWebhooks(e, e.follow("mutatingwebhookconfigurations", &admissionv1.MutatingWebhookConfiguration{}))
	e.validatingWebhooks = newValidatingWebhooks(e, e.follow("validatingwebhookconfigurations", &admissionv1.ValidatingWebhookConfiguration{}))
	e.mutatingPolicies = newMutatingPolicies(e, e.follow("mutatingadmissionpolicies", &admissionv1.MutatingAdmissionPolicy{}),
		e.follow("mutatingadmissionpolicybindings", &admissionv1.MutatingAdmissionPolicyBinding{}))
	e.validatingPolicies = newValidatingPolicies(e, e.follow("validatingadmissionpolicies", &admissionv1.ValidatingAdmissionPolicy{}),
		e.follow("validatingadmissionpolicybindings", &admissionv1.ValidatingAdmissionPolicyBinding{}))
	if err := e.loadManifests(); err != nil {
		return nil, fmt.Errorf("make admission engine: --admission-control-config-file=%s: %w", cfg.ConfigFile, err)
	}
	return e, nil
}

// connect makes the clients of the gateway.
func (e *Engine) connect() (err error) {
	if err := admissionv1.AddToScheme(e.scheme); err != nil {
		return err
	}
	if e.authorizer, err = newAuthorizer(&e.cfg); err != nil {
		return err
	}
	e.client = client.New(client.Config{BaseURL: e.cfg.BaseURL, Transport: e.cfg.Transport, UserAgent: e.cfg.UserAgent})
	if e.parameters, err = dynamic.NewForConfigAndClient(e.cfg.clientConfig(), egress.Client(e.cfg.Transport, 0)); err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(e.cfg.clientConfig(), egress.Client(e.cfg.Transport, lookupTimeout))
	if err != nil {
		return err
	}
	e.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))
	return nil
}

// follow returns the informer of a kind of configuration.
func (e *Engine) follow(plural string, obj runtime.Object) *informer.Informer {
	gvks, _, _ := e.scheme.ObjectKinds(obj) // connect added the kind
	i := newInformer(e, &resource.Info{Group: configurationGroup, Versions: []string{"v1"}, Resource: plural, Kind: gvks[0].Kind}, e.namespaces.needed.Open)
	e.configurations[plural] = i
	e.register(obj, i)
	return i
}

// register makes i the factory's informer for objects of the type of obj.
func (e *Engine) register(obj runtime.Object, i cache.SharedIndexInformer) {
	e.factory.InformerFor(obj, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return i })
}

// open returns the store of a resource, which is the process's own or one over HTTP, and the
// codec of its objects.
func (e *Engine) open(info *resource.Info) (resource.Reader, rest.Codec) {
	v1 := rest.Typed(e.scheme, info.GVK("v1"))
	if e.cfg.Source != nil {
		if s, codec := e.cfg.Source(info); s != nil {
			return s, cmp.Or(codec, v1)
		}
	}
	return e.client.Reader(info), v1
}

// Run follows the configurations until ctx ends, and returns its error.
func (e *Engine) Run(ctx context.Context) error {
	if e == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	defer close(e.stopped)
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){
		e.namespaces.run, e.mutatingWebhooks.informer.Follow, e.validatingWebhooks.informer.Follow, e.mutatingPolicies.run, e.validatingPolicies.run,
	} {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

// Ready returns nil once all configurations were read or restored. It is for health checks;
// writes wait by themselves.
func (e *Engine) Ready() error {
	if e == nil {
		return nil
	}
	for _, g := range []*informer.Gate{e.mutatingWebhooks.informer.Synced(), e.validatingWebhooks.informer.Synced(), e.mutatingPolicies.synced, e.validatingPolicies.synced} {
		if !g.IsOpen() {
			return errUnknown()
		}
	}
	return nil
}

// Configurations returns the last state that was read of each kind of configuration, by
// resource. Kinds that were not read yet are missing.
func (e *Engine) Configurations() map[string]*loop.Snapshot {
	out := map[string]*loop.Snapshot{}
	for name, i := range e.configurations {
		if last := i.Read(); last != nil {
			out[name] = last
		}
	}
	return out
}

// Restore sets the objects of one kind of configuration, which an earlier process read, until
// the store is read. name is the resource; others are ignored.
func (e *Engine) Restore(name string, objects []*resource.Object) {
	if i := e.configurations[name]; i != nil {
		i.Restore(objects)
	}
}

func errUnknown() error {
	return resource.Unavailable("admission webhooks and policies are not known yet", 1)
}

// withWarnings returns a context that passes the warnings of the engines to EngineConfig.Warn.
func (e *Engine) withWarnings(ctx context.Context) context.Context {
	if e.cfg.Warn == nil {
		return ctx
	}
	return warning.WithWarningRecorder(ctx, &recorder{ctx, e.cfg.Warn})
}

// recorder passes the warnings of the engines to one request.
type recorder struct {
	ctx  context.Context
	warn rest.Warn
}

// AddWarning implements warning.Recorder. The engines set no agent.
func (r *recorder) AddWarning(_, text string) { r.warn(r.ctx, text) }

// asStatus returns the error of an engine as a StatusError: an internal error unless it is
// one already.
func asStatus(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}

// newAuthorizer returns the authorizer of the variable `authorizer` in CEL expressions.
func newAuthorizer(cfg *EngineConfig) (upstream.UnconditionalAuthorizer, error) {
	if cfg.Authorizer != nil {
		return localAuthorizer{cfg.Authorizer}, nil
	}
	reviews, err := authorizationv1client.NewForConfigAndClient(cfg.clientConfig(), egress.Client(cfg.Transport, lookupTimeout))
	if err != nil {
		return nil, err
	}
	// Results are not cached, and there is one attempt.
	remote, err := webhook.NewFromInterface(reviews, 0, 0, wait.Backoff{Steps: 1}, upstream.DecisionNoOpinion, metrics.NoopAuthorizerMetrics{}, nil)
	return constrained{remote}, err
}

// constrained is an authorizer that decides about the impersonator of a constrained
// impersonation too.
type constrained struct {
	upstream.UnconditionalAuthorizer
}

// Authorize implements UnconditionalAuthorizer.
func (c constrained) Authorize(ctx context.Context, a upstream.Attributes) (upstream.Decision, string, error) {
	decision, reason, err := c.UnconditionalAuthorizer.Authorize(ctx, a)
	on := authz.ImpersonateOn(ActionOf(a))
	if decision != upstream.DecisionAllow || on == nil {
		return decision, reason, err
	}
	return c.UnconditionalAuthorizer.Authorize(ctx, impersonateOn{a, on})
}

// impersonateOn are attributes with the user and the verb of an action.
type impersonateOn struct {
	upstream.Attributes
	action *resource.Action
}

// GetUser implements Attributes.
func (i impersonateOn) GetUser() user.Info { return userOf(i.action) }

// GetVerb implements Attributes.
func (i impersonateOn) GetVerb() string { return i.action.Verb }

// localAuthorizer is the authorizer of this process.
type localAuthorizer struct{ authorizer authz.Authorizer }

// Authorize implements UnconditionalAuthorizer.
func (l localAuthorizer) Authorize(ctx context.Context, a upstream.Attributes) (upstream.Decision, string, error) {
	decision, reason, err := l.authorizer.Authorize(ctx, ActionOf(a))
	switch decision {
	case authz.Allow:
		return upstream.DecisionAllow, reason, err
	case authz.Deny:
		return upstream.DecisionDeny, reason, err
	}
	return upstream.DecisionNoOpinion, reason, err
}

// ActionOf returns the action that an expression or a plugin of kube-apiserver asks about.
func ActionOf(a upstream.Attributes) *resource.Action {
	action := &resource.Action{
		Verb: a.GetVerb(), Path: a.GetPath(), IsResource: a.IsResourceRequest(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Namespace: a.GetNamespace(), Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(), InPath: a.GetName() != "",
	}
	if u := a.GetUser(); u != nil {
		action.User = &resource.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
		if own, ok := u.(*userInfo); ok {
			action.User.Constraint = own.constraint
		}
	}
	return action
}
