package admission

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"portico/resource"
)

// configuration is a webhook configuration of either kind.
type configuration interface {
	runtime.Object
	metav1.Object
}

// Parts of a write, as upstream's audit names them.
const (
	PartMutatingWebhooks   = "mutating-webhook"
	PartValidatingWebhooks = "validating-webhook"
)

// webhooks is one of the two webhook engines with the configurations it works
// from. The engine is made with the first of them.
type webhooks[C configuration] struct {
	source   *source[C]
	informer *informer
	needed   *gate // namespaces: wanted once there are webhooks
	logger   *slog.Logger
	timer    *timer
	part     string // of a write, as for EngineConfig.Waited
	waited   func(ctx context.Context, part string, d time.Duration)
	create   func() (askFunc, error)

	known *gate
	// some says whether there are configurations at all.
	some atomic.Bool
	// askAll is set before some.
	askAll atomic.Pointer[askFunc]
}

type askFunc func(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error

func newMutatingWebhooks(e *Engine) *webhooks[*admissionv1.MutatingWebhookConfiguration] {
	w := newWebhooks[*admissionv1.MutatingWebhookConfiguration](e, nameMutatingWebhooks, PartMutatingWebhooks, configurationInfo("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"))
	w.create = func() (askFunc, error) {
		plugin, err := mutating.NewMutatingWebhook(nil)
		if err != nil {
			return nil, err
		}
		return plugin.Admit, e.equip(plugin.Webhook, w.informer)
	}
	return w
}

func newValidatingWebhooks(e *Engine) *webhooks[*admissionv1.ValidatingWebhookConfiguration] {
	w := newWebhooks[*admissionv1.ValidatingWebhookConfiguration](e, nameValidatingWebhooks, PartValidatingWebhooks, configurationInfo("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"))
	w.create = func() (askFunc, error) {
		plugin, err := validating.NewValidatingAdmissionWebhook(nil)
		if err != nil {
			return nil, err
		}
		return plugin.Validate, e.equip(plugin.Webhook, w.informer)
	}
	return w
}

func newWebhooks[C configuration](e *Engine, name, part string, info *resource.Info) *webhooks[C] {
	w := &webhooks[C]{
		informer: newInformer(), needed: e.namespaces.needed, logger: e.logger, known: newGate(),
		timer: e.cfg.Metrics.controller(name), part: part, waited: e.cfg.Waited,
	}
	w.source = newSource(e, info, w.publish)
	return w
}

// equip gives a webhook engine all it needs.
func (e *Engine) equip(w *generic.Webhook, configurations *informer) error {
	w.SetExternalKubeClientSet(e.namespaces.client())
	w.SetExternalKubeInformerFactory(factory{configurations: configurations, namespaces: e.namespaces})
	w.SetUnconditionalAuthorizer(e.authorizer)
	w.SetServiceResolver(e.cfg.Services)
	w.SetAuthenticationInfoResolverWrapper(func(resolver webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
		if e.cfg.Credentials != nil {
			resolver = e.cfg.Credentials
		}
		return boundAnswers(resolver)
	})
	return w.ValidateInitialization()
}

func (w *webhooks[C]) run(ctx context.Context) { w.source.run(ctx) }

// publish makes the configurations those that count.
func (w *webhooks[C]) publish(list []C) {
	if err := w.apply(list); err != nil {
		// Not known then: writes must not pass unseen.
		w.logger.Error("make webhook engine failed", "error", err)
		return
	}
	w.known.open()
}

func (w *webhooks[C]) apply(list []C) error {
	objects := make([]metav1.Object, len(list))
	for i, c := range list {
		objects[i] = c
	}
	if err := w.informer.replace(objects); err != nil {
		return err
	}
	if len(list) > 0 && w.askAll.Load() == nil {
		w.needed.open()
		ask, err := w.create()
		if err != nil {
			return fmt.Errorf("make webhook engine: %w", err)
		}
		w.askAll.Store(&ask)
	}
	w.some.Store(len(list) > 0)
	return nil
}

// any reports whether there are webhooks to ask.
func (w *webhooks[C]) any() bool { return w.some.Load() }

// ask calls all webhooks that match the write.
func (w *webhooks[C]) ask(ctx context.Context, p *passage) error {
	if !w.some.Load() {
		return nil
	}
	begun := time.Now()
	err := (*w.askAll.Load())(ctx, p.attributes(), p.objects)
	w.waited(ctx, w.part, time.Since(begun))
	w.timer.observe(begun, p.write.Operation, err)
	return err
}
