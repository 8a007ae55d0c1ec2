package admission

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	restclient "k8s.io/client-go/rest"
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
	informer    *informer
	name, phase string // in metrics
	part        string // for EngineConfig.Waited
	waited      func(ctx context.Context, part string, d time.Duration)
	// engine makes upstream's engine when it is first called.
	engine func() (callFunc, error)
}

// callFunc calls all webhooks that match a write.
type callFunc func(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error

func newMutatingWebhooks(e *Engine, i *informer) *webhooks {
	return &webhooks{
		informer: i, name: mutating.PluginName, phase: phaseAdmit, part: PartMutatingWebhooks, waited: e.cfg.Waited,
		engine: sync.OnceValues(func() (callFunc, error) {
			plugin, err := mutating.NewMutatingWebhook(nil)
			if err != nil {
				return nil, err
			}
			return plugin.Admit, e.initialize(plugin.Webhook)
		}),
	}
}

func newValidatingWebhooks(e *Engine, i *informer) *webhooks {
	return &webhooks{
		informer: i, name: validating.PluginName, phase: phaseValidate, part: PartValidatingWebhooks, waited: e.cfg.Waited,
		engine: sync.OnceValues(func() (callFunc, error) {
			plugin, err := validating.NewValidatingAdmissionWebhook(nil)
			if err != nil {
				return nil, err
			}
			return plugin.Validate, e.initialize(plugin.Webhook)
		}),
	}
}

// initialize sets the dependencies of a webhook engine.
func (e *Engine) initialize(w *generic.Webhook) error {
	w.SetExternalKubeClientSet(e.namespaces.client())
	w.SetExternalKubeInformerFactory(e.factory)
	w.SetUnconditionalAuthorizer(e.authorizer)
	w.SetServiceResolver(e.services)
	w.SetAuthenticationInfoResolverWrapper(boundResponses)
	return w.ValidateInitialization()
}

// call calls all webhooks that match the write.
func (w *webhooks) call(ctx context.Context, r *review) error {
	if !w.informer.some.Load() {
		return nil
	}
	engine, err := w.engine()
	if err != nil {
		return fmt.Errorf("make webhook engine: %w", err)
	}
	begun := time.Now()
	err = engine(ctx, r.attributes(), r.objects)
	w.waited(ctx, w.part, time.Since(begun))
	observe(ctx, begun, w.name, w.phase, r.write.Operation, err)
	return err
}

// boundResponses returns a resolver for clients that fail on responses of more than
// maxWebhookResponse bytes, so that the failure policy of the webhook applies.
func boundResponses(r webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
	bound := func(cfg *restclient.Config, err error) (*restclient.Config, error) {
		if err != nil {
			return nil, err
		}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} })
		return cfg, nil
	}
	return &webhookutil.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*restclient.Config, error) { return bound(r.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*restclient.Config, error) {
			return bound(r.ClientConfigForService(name, namespace, port))
		},
	}
}

// boundedTransport makes response bodies fail after maxWebhookResponse bytes.
type boundedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = &boundedBody{ReadCloser: res.Body, left: maxWebhookResponse}
	}
	return res, err
}

// boundedBody fails after left bytes.
type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the response has more than %d bytes", maxWebhookResponse)
	}
	return n, err
}
