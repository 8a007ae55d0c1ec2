package admission

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	restclient "k8s.io/client-go/rest"

	"portico/resource"
	"portico/resource/egress"
	"portico/resource/rest"
	"portico/resource/rest/informer"
)

// Phases of a write in audit annotations, with upstream's names.
const (
	PartMutatingWebhooks   = "mutating-webhook"
	PartValidatingWebhooks = "validating-webhook"
)

// maxWebhookResponse bounds the response of a webhook, in bytes. A JSON patch that replaces
// the largest object takes 4 MiB in base64.
const maxWebhookResponse = 8 << 20

// webhooks is one of upstream's two webhook engines with its configurations.
type webhooks struct {
	informer    *informer.Informer
	name, phase string // in metrics
	part        string // for EngineConfig.Waited
	waited      func(ctx context.Context, part string, d time.Duration)
	// static: there are static manifests.
	static bool
	// engine makes upstream's engine when it is first called.
	engine func() (callFunc, error)
}

// callFunc calls all webhooks that match a write.
type callFunc func(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error

func newMutatingWebhooks(e *Engine, i *informer.Informer) *webhooks {
	return &webhooks{
		informer: i, name: mutating.PluginName, phase: PhaseAdmit, part: PartMutatingWebhooks, waited: e.cfg.Waited,
		engine: sync.OnceValues(func() (callFunc, error) {
			plugin, err := mutating.NewMutatingWebhook(readerOf(e.configured[PluginMutatingWebhooks]))
			if err != nil {
				return nil, err
			}
			plugin.SetManifestLoaders(webhookLoaders())
			return plugin.Admit, e.initialize(mutating.PluginName, plugin.Webhook)
		}),
	}
}

func newValidatingWebhooks(e *Engine, i *informer.Informer) *webhooks {
	return &webhooks{
		informer: i, name: validating.PluginName, phase: PhaseValidate, part: PartValidatingWebhooks, waited: e.cfg.Waited,
		engine: sync.OnceValues(func() (callFunc, error) {
			plugin, err := validating.NewValidatingAdmissionWebhook(readerOf(e.configured[PluginValidatingWebhooks]))
			if err != nil {
				return nil, err
			}
			plugin.SetManifestLoaders(webhookLoaders())
			return plugin.Validate, e.initialize(validating.PluginName, plugin.Webhook)
		}),
	}
}

// initialize sets the dependencies of a webhook engine.
func (e *Engine) initialize(name string, w *generic.Webhook) error {
	w.SetExternalKubeClientSet(e.namespaces.client())
	w.SetExternalKubeInformerFactory(e.factory)
	w.SetUnconditionalAuthorizer(e.authorizer)
	w.SetServiceResolver(e.services)
	w.SetDrainedNotification(e.stopped)
	w.SetAuthenticationInfoResolverWrapper(func(webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
		return WebhookClients(e.cfg.Egress)(e.credentials[name])
	})
	return w.ValidateInitialization()
}

// call calls all webhooks that match the write.
func (w *webhooks) call(ctx context.Context, r *review) error {
	if !w.informer.Some() && !w.static {
		return nil
	}
	engine, err := w.engine()
	if err != nil {
		return fmt.Errorf("make webhook engine: %w", err)
	}
	begun := time.Now()
	err = engine(ctx, r.attributes(), r.objects)
	w.waited(ctx, w.part, time.Since(begun))
	Observe(ctx, begun, w.name, w.phase, r.write.Operation, err)
	return err
}

// WebhookClients wraps resolvers for clients that connect as the selector says, to URLs for the control
// plane and to Services for the cluster, and that fail on redirects and on responses of more than
// maxWebhookResponse bytes, so that the failure policy of the webhook applies.
func WebhookClients(via egress.Selector) webhookutil.AuthenticationInfoResolverWrapper {
	wrap := func(dial egress.Dial, cfg *restclient.Config, err error) (*restclient.Config, error) {
		if err != nil {
			return nil, err
		}
		if dial != nil {
			cfg.Dial = dial
		}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return BoundAnswers(next, maxWebhookResponse) })
		return cfg, nil
	}
	return func(r webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
		return &webhookutil.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*restclient.Config, error) {
				cfg, err := r.ClientConfigFor(hostPort)
				return wrap(via.ControlPlane, cfg, err)
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*restclient.Config, error) {
				cfg, err := r.ClientConfigForService(name, namespace, port)
				return wrap(via.Cluster, cfg, err)
			},
		}
	}
}

// BoundAnswers returns a transport whose response bodies fail after limit bytes, and that fails on redirects.
func BoundAnswers(next http.RoundTripper, limit int) http.RoundTripper {
	return boundedTransport{egress.RefuseRedirects(next), limit}
}

type boundedTransport struct {
	next  http.RoundTripper
	limit int
}

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = &boundedBody{ReadCloser: res.Body, limit: b.limit, left: b.limit}
	}
	return res, err
}

// boundedBody fails after left more bytes.
type boundedBody struct {
	io.ReadCloser
	limit, left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the response has more than %d bytes", b.limit)
	}
	return n, err
}

const (
	// endpointsLife is how long the endpoints of a Service are cached. The webhook engines
	// resolve them before every call.
	endpointsLife = 2 * time.Second
	// maxServices bounds the cached Services.
	maxServices = 1000
)

// serviceResolver resolves the Services of webhooks to the ready endpoints of their
// EndpointSlices. While they cannot be read the last endpoints are used.
type serviceResolver struct {
	services, slices           resource.Reader
	servicesCodec, slicesCodec rest.Codec

	mu    sync.Mutex
	found map[servicePort]endpoints
}

type servicePort struct {
	namespace, name string
	port            int32
}

type endpoints struct {
	urls  []*url.URL
	until time.Time
}

func newServiceResolver(e *Engine) *serviceResolver {
	services := &resource.Info{Versions: []string{"v1"}, Resource: "services", Kind: "Service", Namespaced: true}
	slices := &resource.Info{Group: discoveryv1.GroupName, Versions: []string{"v1"}, Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true}
	r := &serviceResolver{found: map[servicePort]endpoints{}}
	r.services, r.servicesCodec = e.open(services)
	r.slices, r.slicesCodec = e.open(slices)
	return r
}

// Services resolves the Services of webhooks to their endpoints; nil if e is nil.
func (e *Engine) Services() webhookutil.ServiceResolver {
	if e == nil {
		return nil
	}
	return e.services
}

// ResolveEndpoint returns the URL of a random ready endpoint. It implements
// webhook.ServiceResolver.
func (r *serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	key := servicePort{namespace, name, port}
	r.mu.Lock()
	last, known := r.found[key]
	r.mu.Unlock()
	if !known || time.Now().After(last.until) {
		urls, err := r.read(key)
		switch {
		case err == nil:
			last = endpoints{urls, time.Now().Add(endpointsLife)}
			r.cache(key, last)
		case !known || apierrors.IsNotFound(err):
			return nil, err
		}
	}
	if len(last.urls) == 0 {
		return nil, fmt.Errorf("no endpoints available for service %q", namespace+"/"+name)
	}
	return last.urls[rand.IntN(len(last.urls))], nil
}

func (r *serviceResolver) cache(key servicePort, e endpoints) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) >= maxServices {
		clear(r.found)
	}
	r.found[key] = e
}

// read reads the endpoints of a port of a Service.
func (r *serviceResolver) read(key servicePort) ([]*url.URL, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	o, err := r.services.Get(ctx, resource.Key{Namespace: key.namespace, Name: key.name}, resource.At{})
	if err != nil {
		return nil, err
	}
	service, err := decodeAs[*corev1.Service](r.servicesCodec, o)
	if err != nil {
		return nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []*url.URL{urlOf(service.Spec.ExternalName, key.port)}, nil
	}
	portName, err := portNameOf(service, key.port)
	if err != nil {
		return nil, err
	}
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: key.name})
	list, err := r.slices.List(ctx, resource.ListOptions{Namespace: key.namespace, Selector: resource.Selector{Labels: selector}})
	if err != nil {
		return nil, err
	}
	ready := []*url.URL{}
	for _, o := range list.Items {
		slice, err := decodeAs[*discoveryv1.EndpointSlice](r.slicesCodec, o)
		if err != nil {
			return nil, err
		}
		ready = append(ready, readyEndpoints(slice, portName)...)
	}
	return ready, nil
}

func portNameOf(service *corev1.Service, port int32) (string, error) {
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			return p.Name, nil
		}
	}
	return "", fmt.Errorf("no service port %d found for service %q", port, service.Namespace+"/"+service.Name)
}

// readyEndpoints returns the ready endpoints of a slice for a port. Endpoints without a
// condition count as ready.
func readyEndpoints(slice *discoveryv1.EndpointSlice, portName string) (out []*url.URL) {
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name == nil && portName != "" || p.Name != nil && *p.Name != portName {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, address := range e.Addresses {
				out = append(out, urlOf(address, *p.Port))
			}
		}
	}
	return out
}

func urlOf(host string, port int32) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}
}

func decodeAs[T runtime.Object](codec rest.Codec, o *resource.Object) (T, error) {
	var none T
	obj, err := codec.DecodeStored(o)
	if err != nil {
		return none, err
	}
	return obj.(T), nil // a Typed codec has one type
}
