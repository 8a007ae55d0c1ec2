package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"k8s.io/kubernetes/plugin/pkg/admission/gc"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/audit"
	"portico/resource/rest"
)

// kubernetes calls consecutive plugins of kube-apiserver with one object of the internal version.
type kubernetes struct {
	plugins []kubernetesPlugin
	warn    rest.Warn
}

type kubernetesPlugin struct {
	row
	k8sadmission.Interface
}

// newKubernetesPlugin returns the plugin of a row.
func newKubernetesPlugin(cfg *Config, r row) (kubernetesPlugin, error) {
	if r.name == gc.PluginName && cfg.Mapper == nil {
		return kubernetesPlugin{}, errors.New("kinds of owners are found through the gateway, and this server was started without --gateway")
	}
	registered := k8sadmission.NewPlugins()
	r.register(registered)
	var config io.Reader
	if data, ok := cfg.files[r.name]; ok {
		if err := checkConfiguration(r.name, data); err != nil {
			return kubernetesPlugin{}, fmt.Errorf("configuration: %w", err)
		}
		config = bytes.NewReader(data)
	}
	if r.name == defaulttolerationseconds.PluginName {
		defer lockTolerationSeconds(&cfg.Options)()
	}
	plugin, err := registered.InitPlugin(r.name, config,
		initializer.New(newClient(cfg), nil, newInformers(cfg), authorizer.AuthorizerFunc(asker{cfg.Authorize}.Authorize), utilfeature.DefaultFeatureGate,
			compatibility.DefaultBuildEffectiveVersion(), nil, cfg.Mapper))
	return kubernetesPlugin{r, plugin}, err
}

// tolerationFlags are the flags of DefaultTolerationSeconds, which are variables of its package.
var tolerationFlags = sync.OnceValue(func() *lockedFlags {
	f := &lockedFlags{FlagSet: pflag.NewFlagSet("", pflag.ContinueOnError)}
	defaulttolerationseconds.RegisterFlags(f.FlagSet)
	return f
})

type lockedFlags struct {
	sync.Mutex
	*pflag.FlagSet
}

// lockTolerationSeconds sets the flags for a plugin that is initialized before unlock.
func lockTolerationSeconds(o *Options) (unlock func()) {
	flags := tolerationFlags()
	flags.Lock()
	for name, seconds := range map[string]*int64{
		"default-not-ready-toleration-seconds": o.NotReadyTolerationSeconds, "default-unreachable-toleration-seconds": o.UnreachableTolerationSeconds,
	} {
		_ = flags.Set(name, fmt.Sprint(ptr.Deref(seconds, DefaultTolerationSeconds))) // a number is valid
	}
	return flags.Unlock
}

// Mutate implements rest.Admission.
func (k *kubernetes) Mutate(ctx context.Context, a *rest.Attributes) error {
	w, err := k.newWrite(ctx, a, func(p kubernetesPlugin) bool { _, ok := p.Interface.(k8sadmission.MutationInterface); return ok })
	if w == nil || err != nil {
		return err
	}
	for _, p := range w.plugins {
		if err := w.call(p, admission.PhaseAdmit, p.Interface.(k8sadmission.MutationInterface).Admit); err != nil {
			return err
		}
	}
	if a.Object == nil {
		return nil
	}
	return kinds.SetFromInternal(a.Object, w.GetObject())
}

// Validate implements rest.Admission.
func (k *kubernetes) Validate(ctx context.Context, a *rest.Attributes) error {
	w, err := k.newWrite(ctx, a, func(p kubernetesPlugin) bool { _, ok := p.Interface.(k8sadmission.ValidationInterface); return ok })
	if w == nil || err != nil {
		return err
	}
	for _, p := range w.plugins {
		if err := w.call(p, admission.PhaseValidate, p.Interface.(k8sadmission.ValidationInterface).Validate); err != nil {
			return err
		}
	}
	return nil
}

// kubernetesWrite is a write in one phase, with the plugins that handle it.
type kubernetesWrite struct {
	k8sadmission.Attributes
	ctx     context.Context
	write   *rest.Attributes
	plugins []kubernetesPlugin
	// unanswered is the error of the last authorization that the gateway did not answer.
	unanswered error
}

// newWrite returns a write with the plugins that handle it and have the phase. It returns nil if no plugin does.
func (k *kubernetes) newWrite(ctx context.Context, a *rest.Attributes, has func(kubernetesPlugin) bool) (*kubernetesWrite, error) {
	w := &kubernetesWrite{write: a}
	for _, p := range k.plugins {
		if p.takes(a) && p.Handles(k8sadmission.Operation(a.Operation)) && has(p) {
			w.plugins = append(w.plugins, p)
		}
	}
	if len(w.plugins) == 0 {
		return nil, nil
	}
	in := *a
	if a.Object != nil {
		var err error
		if in.Object, err = kinds.Internal(a.Object); err != nil {
			// As the check of the strategy, which follows.
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", a.Kind.Kind, a.Kind.Storage(), a.Kind.Kind, err))
		}
	}
	if a.Old != nil {
		in.Old = kinds.StoredInternal(a.Old)
	}
	w.Attributes = admission.NewAttributes(&in)
	w.ctx = context.WithValue(warning.WithWarningRecorder(ctx, recorder{ctx, k.warn}), writeKey{}, w)
	return w, nil
}

// writeKey is the key of the kubernetesWrite in the context of a plugin.
type writeKey struct{}

// call runs one phase of a plugin, and observes it. A plugin refuses a write as forbidden if it gets no
// answer from the gateway; that error is returned instead.
func (w *kubernetesWrite) call(p kubernetesPlugin, phase string, run func(context.Context, k8sadmission.Attributes, k8sadmission.ObjectInterfaces) error) error {
	begun := time.Now()
	w.unanswered = nil
	err := asStatus(w.recovering(run))
	if err != nil && w.unanswered != nil {
		err = asStatus(w.unanswered)
	}
	admission.Observe(w.ctx, begun, p.name, phase, w.write.Operation, err)
	return err
}

// recovering calls run, and returns the readError of a lister.
func (w *kubernetesWrite) recovering(run func(context.Context, k8sadmission.Attributes, k8sadmission.ObjectInterfaces) error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case readError:
			err = p.error
		default:
			panic(p)
		}
	}()
	return run(w.ctx, w, nil)
}

// AddAnnotation implements admission.Attributes.
func (w *kubernetesWrite) AddAnnotation(key, value string) error {
	audit.Annotate(w.ctx, key, value)
	return nil
}

// recorder sends the warnings of plugins to the client.
type recorder struct {
	ctx  context.Context
	warn rest.Warn
}

// AddWarning implements warning.Recorder.
func (r recorder) AddWarning(_, text string) { r.warn(r.ctx, text) }

// asker asks the gateway for plugins.
type asker struct {
	authorize func(ctx context.Context, a *resource.Action) error
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (q asker) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch err := q.authorize(ctx, admission.ActionOf(a)); {
	case err == nil:
		return authorizer.DecisionAllow, "", nil
	case apierrors.IsForbidden(err):
		return authorizer.DecisionNoOpinion, err.Error(), nil
	default:
		if w, ok := ctx.Value(writeKey{}).(*kubernetesWrite); ok {
			w.unanswered = err
		}
		return authorizer.DecisionNoOpinion, "", err
	}
}
