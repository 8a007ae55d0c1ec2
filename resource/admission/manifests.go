package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/manifest/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/policy/config"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	policyloader "k8s.io/apiserver/pkg/admission/plugin/policy/manifest/loader"
	"k8s.io/apiserver/pkg/admission/plugin/policy/manifest/source"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookconfig "k8s.io/apiserver/pkg/admission/plugin/webhook/config"
	webhookloader "k8s.io/apiserver/pkg/admission/plugin/webhook/manifest/loader"
)

// Static manifests are webhooks and policies in a directory that the configuration of a plugin names. Upstream's loaders and
// sources read them, at the start and when they change; they are not in the API, and apply to the kinds of
// admissionregistration.k8s.io as well.

// PolicyManifests returns the directory of static manifests in the configuration of a policy plugin, or "" if it
// names none.
func PolicyManifests(plugin string, configuration []byte) (string, error) {
	load := config.LoadValidatingConfig
	if plugin == PluginMutatingPolicies {
		load = config.LoadMutatingConfig
	}
	cfg, err := load(readerOf(configuration))
	if err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	return cfg.StaticManifestsDir, nil
}

// readerOf returns a reader of a configuration; nil without one.
func readerOf(configuration []byte) io.Reader {
	if configuration == nil {
		return nil
	}
	return bytes.NewReader(configuration)
}

// manifestDecoder decodes a document of a manifest; unknown fields are errors.
var manifestDecoder = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	scheme.AddKnownTypes(schema.GroupVersion{Version: "v1"}, &metav1.List{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
})

// accepted returns a decoded object of the type T with its defaults.
func accepted[T metav1.Object](obj runtime.Object) ([]T, error) {
	item, ok := obj.(T)
	if !ok {
		return nil, fmt.Errorf("%w: %T", policyloader.ErrUnrecognizedType, obj)
	}
	return []T{item}, setManifestDefaults(obj)
}

// webhookLoaders are the loaders of static webhooks.
func webhookLoaders() *initializer.ManifestLoaders {
	return &initializer.ManifestLoaders{
		LoadValidatingWebhookManifests: func(dir string) ([]*admissionv1.ValidatingWebhookConfiguration, string, error) {
			return webhookloader.LoadManifests(dir, manifestDecoder(), accepted[*admissionv1.ValidatingWebhookConfiguration])
		},
		LoadMutatingWebhookManifests: func(dir string) ([]*admissionv1.MutatingWebhookConfiguration, string, error) {
			return webhookloader.LoadManifests(dir, manifestDecoder(), accepted[*admissionv1.MutatingWebhookConfiguration])
		},
	}
}

// staticPolicies is a source of static policies.
type staticPolicies[H generic.Hook] interface {
	generic.HookSource[H]
	LoadInitial() error
	RunReloadLoop(ctx context.Context)
}

// staticValidating returns the static policies of a directory, which LoadInitial reads.
func staticValidating(dir string) staticPolicies[validating.PolicyHook] {
	policyName := func(b *admissionv1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName }
	return source.NewStaticPolicySource(dir, "", func(p *validating.Policy) (validating.Validator, error) {
		return compileValidating(p), nil
	}, func(dir string) ([]*admissionv1.ValidatingAdmissionPolicy, []*admissionv1.ValidatingAdmissionPolicyBinding, string, error) {
		return policyloader.LoadPolicyManifests(dir, manifestDecoder(), accepted[*admissionv1.ValidatingAdmissionPolicy],
			accepted[*admissionv1.ValidatingAdmissionPolicyBinding], policyName)
	}, policyName, metrics.VAPManifestType)
}

// staticMutating is staticValidating for mutating policies.
func staticMutating(dir string) staticPolicies[mutating.PolicyHook] {
	policyName := func(b *admissionv1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName }
	return source.NewStaticPolicySource(dir, "", func(p *mutating.Policy) (mutating.PolicyEvaluator, error) {
		return compileMutating(p), nil
	}, func(dir string) ([]*admissionv1.MutatingAdmissionPolicy, []*admissionv1.MutatingAdmissionPolicyBinding, string, error) {
		return policyloader.LoadPolicyManifests(dir, manifestDecoder(), accepted[*admissionv1.MutatingAdmissionPolicy],
			accepted[*admissionv1.MutatingAdmissionPolicyBinding], policyName)
	}, policyName, metrics.MAPManifestType)
}

// loadManifests reads the static manifests of all plugins.
func (e *Engine) loadManifests() error {
	for _, w := range []*webhooks{e.mutatingWebhooks, e.validatingWebhooks} {
		cfg, err := webhookconfig.LoadConfig(readerOf(e.configured[w.name])) // its errors were found with the credentials
		if err != nil || cfg.StaticManifestsDir == "" {
			continue
		}
		w.static = true
		e.namespaces.needed.Open()
		if _, err := w.engine(); err != nil {
			return fmt.Errorf("plugin %s: %w", w.name, err)
		}
	}
	return errors.Join(loadPolicies(e, e.mutatingPolicies, staticMutating), loadPolicies(e, e.validatingPolicies, staticValidating))
}

func loadPolicies[H generic.Hook](e *Engine, p *policies[H], from func(dir string) staticPolicies[H]) error {
	dir, err := PolicyManifests(p.name, e.configured[p.name])
	if err == nil && dir != "" {
		e.namespaces.needed.Open()
		p.static = from(dir)
		p.source = generic.NewCompositePolicySource[H](p.static, p.source)
		err = p.static.LoadInitial()
	}
	if err != nil {
		return fmt.Errorf("plugin %s: %w", p.name, err)
	}
	return nil
}
